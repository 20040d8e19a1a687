"""The numbers of proxies by name, and gamma by place: what the tests of bounds compare."""

from attnlaw.theory.bounds.factors import log_sensitivities


def logs(proxies):
    """The natural logarithm of every proxy."""
    return {name: estimate.value for name, estimate in proxies.values.items()}


def errors(proxies):
    """The error of every logarithm."""
    return {name: estimate.error for name, estimate in proxies.values.items()}


def log_gamma(layer, kind, head=None, expert=None):
    """ln gamma of one matrix of a layer."""
    leaves = log_sensitivities(layer).leaves()
    (sensitivity,) = (
        gamma
        for location, gamma in leaves
        if (location.kind, location.head, location.expert) == (kind, head, expert)
    )
    return sensitivity
