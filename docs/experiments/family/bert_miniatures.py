"""The paper's own family: growth of the proxies over the 24 BERT miniatures (arXiv 2605.07297).

    python docs/experiments/family/bert_miniatures.py --out DIR [--weights LOCAL]

downloads them (this needs huggingface_hub), or reads LOCAL/bert_uncased_L-2_H-128_A-2 and so on.

Depth 2 to 12 by width 128 to 768, heads of size 64, uncased English BERT, one model each. Rows, exponents
and figures as family_study.py writes them. A download keeps weights and configs in the hub's own cache.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from family_study import audit_all, study, write_rows

DEPTHS = (2, 4, 6, 8, 10, 12)
WIDTHS = (128, 256, 512, 768)
NAMES = tuple(f"google/bert_uncased_L-{L}_H-{H}_A-{H // 64}" for L in DEPTHS for H in WIDTHS)
FILES = ("config.json", "*.safetensors", "pytorch_model.bin")


def main() -> None:
    parser = argparse.ArgumentParser(description="The growth study on the 24 BERT miniatures.")
    parser.add_argument("--out", type=Path, required=True, help="where the rows and figures go")
    parser.add_argument(
        "--weights", type=Path, help="directory that holds the models; else they are downloaded"
    )
    options = parser.parse_args()
    paths = local(options.weights) if options.weights is not None else download()
    models, matrices, spectra = audit_all(paths)
    write_rows(options.out, models, matrices)
    study(models, matrices, options.out, spectra)


def local(folder: Path) -> dict[str, Path]:
    """The miniatures below `folder`, by the last part of their names."""
    paths = {name: folder / name.split("/")[1] for name in NAMES}
    missing = [path.name for path in paths.values() if not path.is_dir()]
    if missing:
        raise SystemExit(f"{folder}: {len(missing)} of {len(NAMES)} models are missing, first {missing[0]}")
    return paths


def download() -> dict[str, Path]:
    """The miniatures in the hub's cache, downloaded where they are not there yet."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ModuleNotFoundError:
        raise SystemExit(
            "huggingface_hub is not installed; pip install huggingface_hub, or name local copies by --weights"
        ) from None
    paths = {}
    for name in NAMES:
        try:
            paths[name] = Path(snapshot_download(name, allow_patterns=list(FILES)))
        except (OSError, HfHubHTTPError) as error:
            reason = str(error).strip().splitlines()[0]
            raise SystemExit(
                f"{name}: cannot be downloaded ({reason}); name local copies by --weights"
            ) from None
    return paths


if __name__ == "__main__":
    main()
