r"""The letters of the papers beside the options and columns that stand for them: `<!-- symbols of learn -->`.

Names, letters, options and meanings are read off the declarations; EQUATIONS alone is written here.
"""

from __future__ import annotations

import re
from typing import Any

from attnlaw.core.settings import setting_fields
from attnlaw.verbs import VERBS, find_verb

PLACE = re.compile(r"^<!-- symbols of (?P<verb>\w+) -->$", re.MULTILINE)
# By verb and name of the setting or column: what the letter stands for, in the papers' own.
EQUATIONS: dict[str, dict[str, str]] = {
    "audit": {
        "depth": r"L",
        "hidden_size": r"N",
        "log10_spectrum_adaptive": r"\sum_W \min_{p} C_W(p) + \sqrt{L}",
        "log10_edelman": r"\left(1 + \sum_W (\alpha_l \gamma' \lVert W \rVert_{2,1})^{2/3}\right)^{3/2}",
    },
    "margins": {
        "geometric_mean": r"D = \frac{m}{g s \sqrt{T}}",
        "total_kappa": r"\kappa = \lVert W \rVert \lVert Z \rVert \lVert G \rVert / m",
    },
    "limit": {
        "heads": r"H",
        "width": r"n",
        "head_width": r"n_H",
        "tokens": r"s",
        "score_variance": r"\operatorname{Var} p_{ii}",
        "output_variance": r"\operatorname{Var} y",
        "kl_to_limit": r"\operatorname{KL}(P_n \Vert P_\infty)",
        "w1_to_limit": r"W_1(P_n, P_\infty)",
        "ks_to_limit": r"\sup_y \vert F_n(y) - F_\infty(y) \vert",
    },
    "learn": {
        "alpha": r"\alpha = n / d^2",
        "target_rank": r"\kappa_0 = m_0 / d,\; S^* = W_0 W_0^\top / \sqrt{m_0 d}",
        "noise": r"\Delta",
        "weight_decay": r"\tilde\lambda\, d \operatorname{Tr} S,\; \tilde\lambda = \sqrt{\kappa} \lambda",
        "width": r"\kappa = m / d",
        "flow_time": r"t = 2 d \cdot \text{lr} \cdot \text{steps}",
        "estimation_error": r"E = \lVert \hat S - S^* \rVert_F^2 / d = Q^* - 2m + q",
        "overlap": r"m = \operatorname{Tr} \hat S^\top S^* / d",
        "norm": r"q = \lVert \hat S \rVert_F^2 / d",
        "noise_level": r"S^* + \delta Z",
        "threshold": r"(X - b)_+",
        "observations": r"N / d",
    },
    "dynamics": {
        "times": r"\tau",
        "learning_rate": r"\eta",
        "width": r"\kappa = m / d",
        "target_rank": r"\kappa_0 = m_0 / d",
        "noise": r"\Delta",
        "alignment": r"\rho = (m - t t^*) / \sqrt{(q - t^2)(Q^* - t^{*2})},\; t = \operatorname{Tr} S / d",
        "estimation_error": r"E = \lVert S - S^* \rVert_F^2 / d",
        "overlap": r"m = \operatorname{Tr} S S^* / d",
        "norm": r"q = \operatorname{Tr} S^2 / d",
    },
    "attention": {
        "beta": r"A_r = \operatorname{softmax}(\beta Q_r K_r^\top / \sqrt{d_K})",
        "head_size": r"g_K = h d_K / n",
        "value_size": r"g_V = h d_V / n",
        "output_size": r"g_O = d_O / n",
    },
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its tables."""
    return PLACE.sub(lambda place: symbols_table(place["verb"]), markdown)


def symbols_table(name: str) -> str:
    """One line for each setting and quantity that has a letter or an equation."""
    verb, known = find_verb(name), EQUATIONS.get(name, {})
    lines = ["| symbol | equation | option | column | meaning |", "|---|---|---|---|---|"]
    for key, setting in setting_fields(verb.settings).items():
        if setting.rule.symbol or key in known:
            option = f"`--{key.replace('_', '-')}`" if name in VERBS else f"key `{key}` of a study"
            lines.append(_line(setting.rule.symbol, known.get(key), option, key, setting.rule.help))
    for quantity in verb.quantities:
        if quantity.symbol or quantity.name in known:
            cells = (quantity.symbol, known.get(quantity.name), "", quantity.name, quantity.description)
            lines.append(_line(*cells))
    return "\n".join(lines)


def _line(symbol: str, equation: str | None, option: str, column: str, meaning: str) -> str:
    cells = (symbol, f"${equation}$" if equation else "", option, f"`{column}`", meaning.replace("|", "\\|"))
    return f"| {' | '.join(cells)} |"
