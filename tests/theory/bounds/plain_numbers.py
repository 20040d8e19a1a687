"""The numbers of proxies by name, and gamma by place: what the tests of bounds compare."""

from attnlaw.theory.bounds.factors import log_sensitivities


def logs(found):
    """The natural logarithm of every proxy."""
    return {name: estimate.value for name, estimate in found.values.items()}


def errors(found):
    """The error of every logarithm."""
    return {name: estimate.error for name, estimate in found.values.items()}


def log_gamma(layer, kind, head=None, expert=None):
    """ln gamma of one matrix of a layer."""
    leaves = log_sensitivities(layer).leaves()
    (found,) = (
        gamma for place, gamma in leaves if (place.kind, place.head, place.expert) == (kind, head, expert)
    )
    return found
