"""Pickles that run code, import, or allocate; zip archives that expand, overlap or escape; old tar files."""

from __future__ import annotations

import io
import json
import os
import pickle
import pickletools
import struct
import tarfile
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from checkpoints.spoiled import QUERY, bert_state
from trust.attack import Attack, with_config

SPRUNG = "sprung"  # the file that exists once an attack has run code
HUGE = 10**12


class Calls:
    """Unpickling this calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def zipped(
    pickled: bytes,
    path: Path,
    records: dict[str, bytes] | None = None,
    deflate: bool = False,
    name: str = "archive/data.pkl",
) -> Path:
    """The archive that `torch.save` writes, around any pickle."""
    kind = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind, compresslevel=1) as archive:
        archive.writestr(name, pickled)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/version", b"3\n")
        for name, data in (records or {}).items():
            archive.writestr(name, data)
    return path


def pickled(value: Any) -> bytes:
    return pickle.dumps({QUERY: value}, protocol=2)


def in_every_container(name: str, make: Callable[[Path], bytes], says: str) -> Iterator[Attack]:
    """The same pickle bare, in an archive, and behind the headers of the oldest format."""

    def bare(folder: Path) -> Path:
        path = with_config(folder) / "model.pt"
        path.write_bytes(make(folder))
        return path

    def archive(folder: Path) -> Path:
        return zipped(make(folder), with_config(folder) / "pytorch_model.bin")

    def old(folder: Path) -> Path:
        path = with_config(folder) / "model.ckpt"
        magic = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
        system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
        path.write_bytes(
            magic + pickle.dumps(1001, protocol=2) + pickle.dumps(system, protocol=2) + make(folder)
        )
        return path

    for container in (bare, archive, old):
        yield Attack(f"{name}-{container.__name__}", container, says)


def system(folder: Path) -> bytes:
    return pickled(Calls(os.system, f"touch {folder / SPRUNG}"))


def touch(folder: Path) -> bytes:
    return pickled(Calls(Path.touch, folder / SPRUNG))


def evaluate(folder: Path) -> bytes:
    return pickled(Calls(eval, f"open({str(folder / SPRUNG)!r}, 'w')"))


def imports(folder: Path) -> bytes:
    """GLOBAL of a module that writes a file when it is imported; it lies on the child's path."""
    (folder.parent / "canary_module.py").write_text(
        f"open({str(folder / SPRUNG)!r}, 'w').close()\nthing = 1\n"
    )
    return b"\x80\x02ccanary_module\nthing\n."


def global_on_the_stack(folder: Path) -> bytes:
    """STACK_GLOBAL (protocol 4) in place of GLOBAL."""
    command = f"touch {folder / SPRUNG}".encode()
    return b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + b"\x8c" + bytes([len(command)]) + command + b"\x85R."


def instance(folder: Path) -> bytes:
    """INST, the opcode of protocol 0."""
    return f"(S'touch {folder / SPRUNG}'\nios\nsystem\n.".encode()


def torch_function(folder: Path) -> bytes:
    """A function of torch itself that would run a pickle inside the pickle."""
    return b"\x80\x02ctorch.storage\n_load_from_bytes\nC\x00\x85R."


def inner_class(_folder: Path) -> bytes:
    """An allowed class, then a dotted way out of it."""
    return b"\x80\x02ccollections\nOrderedDict.__class__\n."


def reserves(_folder: Path) -> bytes:
    """`bytearray(10**12)`: a function that is allowed, with an argument that is not."""
    return pickled(Calls(bytearray, HUGE))


def reserves_tensor(_folder: Path) -> bytes:
    return b"\x80\x02ctorch\nTensor\n" + pickle.dumps((10**6, 10**6), protocol=2)[2:-1] + b"R."


def long_integer(_folder: Path) -> bytes:
    """LONG4 that announces 2 GB."""
    return b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"\1"


def long_text(_folder: Path) -> bytes:
    """BINUNICODE that announces 4 GB."""
    return b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"a"


def long_bytes(_folder: Path) -> bytes:
    """BINBYTES8 in a frame, both announcing 2^62 bytes."""
    return b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"\x8e" + struct.pack("<Q", 2**62) + b"a"


def laughs(_folder: Path) -> bytes:
    """A billion laughs: 40 tuples, each ten times the last, as a table's key; its hash takes for ever."""
    levels = [b"q" + bytes([place]) + (b"h" + bytes([place])) * 9 + b"t" for place in range(40)]
    return b"\x80\x02}" + b"(" * 40 + b")" + b"".join(levels) + b"K\1s."


def deep(_folder: Path) -> bytes:
    """A tuple in a tuple, a million deep."""
    return b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\1s."


def spread(folder: Path) -> Path:
    """A whole model of hidden size 50000 whose weights are all the same four bytes (stride 0)."""
    sizes = {8: 50_000, 12: 50_000, 10: 10}
    element = torch.ones(1)
    state = {
        name: element.as_strided([sizes[size] for size in value.shape], (0, 0))
        for name, value in bert_state().items()
    }
    torch.save(state, folder / "pytorch_model.bin")
    config = {"model_type": "bert", "num_attention_heads": 1}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def outside_its_storage(folder: Path) -> Path:
    """A tensor that claims more numbers than its record has bytes."""
    path = with_config(folder) / "pytorch_model.bin"
    state = {name: torch.ones(8, 8) for name in bert_state()}
    torch.save(state, path)
    path.write_bytes(path.read_bytes().replace(b"K\x08K\x08\x86", b"K\xffK\xff\x86"))
    return folder


def short_record(folder: Path) -> Path:
    """A good checkpoint, one record of which ends early: mapped, the rest is what follows in the file."""
    path = with_config(folder) / "pytorch_model.bin"
    torch.save(bert_state(), folder / "plain")
    with zipfile.ZipFile(folder / "plain") as plain, zipfile.ZipFile(path, "w") as archive:
        for entry in plain.infolist():
            data = plain.read(entry)
            archive.writestr(entry.filename, data[:64] if entry.filename.endswith("/data/1") else data)
    return folder


def unfilled(make: Callable[..., Any], *fixed: Any) -> Callable[[Path], bytes]:
    """Weights that a call of their class makes, with the numbers that the memory had before."""
    return lambda _: pickle.dumps(
        {name: Calls(make, *(fixed or value.shape)) for name, value in bert_state().items()}, protocol=2
    )


def unfilled_storage(_folder: Path) -> bytes:
    """The same for the storage of a weight."""
    storage = Calls(torch.storage.TypedStorage, 64)
    rebuild = Calls(torch._utils._rebuild_tensor_v2, storage, 0, (8, 8), (8, 1), False, OrderedDict())
    return pickle.dumps({QUERY: rebuild}, protocol=2)


def new_object(_folder: Path) -> bytes:
    """A weight by NEWOBJ in place of REDUCE."""
    return b"\x80\x02}X\x01\x00\x00\x00actorch\nFloatTensor\nK\x08K\x08\x86\x81s."


def computed_size(folder: Path) -> Path:
    """A storage whose number of entries is no number in the pickle."""
    path = with_config(folder) / "pytorch_model.bin"
    kind = b"X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    pid = b"(" + kind + b"c_codecs\nencode\n)Rt"
    return zipped(b"\x80\x02}X\x01\x00\x00\x00a" + pid + b"Qs.", path, {"archive/data/0": bytes(256)})


def numbers_left_out(beside: bool) -> Callable[[Path], Path]:
    """The oldest format, whose list of storages that follow is empty; their keys may be `beside` the list."""

    def write(folder: Path) -> Path:
        path = with_config(folder) / "pytorch_model.bin"
        torch.save(bert_state(), path, _use_new_zipfile_serialization=False)
        file = io.BytesIO(path.read_bytes())
        for _ in range(4):
            list(pickletools.genops(file))
        start = file.getvalue()[: file.tell()]
        keys = [argument for _, argument, _ in pickletools.genops(file) if isinstance(argument, str)]
        texts = [b"X" + struct.pack("<I", len(key)) + key.encode() for key in keys if beside]
        path.write_bytes(start + b"\x80\x02" + b"".join(texts) + b"].")
        return folder

    return write


def with_attributes(wrap: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], Path]:
    """Weights that bring attributes along, which take the place of a tensor's own."""

    def write(folder: Path) -> Path:
        state = {name: wrap(value) for name, value in bert_state().items()}
        for value in state.values():
            value.detach = 1  # type: ignore[assignment, method-assign]
        torch.save(state, with_config(folder) / "pytorch_model.bin")
        return folder

    return write


def bomb(folder: Path) -> Path:
    """200 MB of pickle in an archive of 200 kB."""
    return zipped(b"\x80\x02" + b"N0" * 10**8, with_config(folder) / "pytorch_model.bin", deflate=True)


def overlapping(folder: Path) -> Path:
    """1000 entries of the archive that are all the same 8 MB of the file."""
    path = with_config(folder) / "pytorch_model.bin"
    records = {"archive/data/0": bytes(8_000_000)} | {f"archive/data/{i}": b"" for i in range(1, 1000)}
    zipped(pickle.dumps({}, protocol=2), path, records)
    with zipfile.ZipFile(path) as archive:
        same = archive.getinfo("archive/data/0")
        names = archive.infolist()
        for entry in names:
            if entry.filename.startswith("archive/data/"):
                entry.header_offset, entry.file_size, entry.compress_size, entry.CRC = (
                    same.header_offset,
                    same.file_size,
                    same.compress_size,
                    same.CRC,
                )
        start = archive.start_dir
    data = path.read_bytes()[:start]
    directory = io.BytesIO()
    with zipfile.ZipFile(directory, "w") as copy:
        copy.start_dir = start
        copy.filelist = names
        copy.NameToInfo = {}
        directory.write(data)
        directory.seek(start)
        copy._didModify = True
    path.write_bytes(directory.getvalue())
    return folder


def escaping(folder: Path) -> Path:
    """A good checkpoint but for records whose names lead out of the archive."""
    names = (f"../../{SPRUNG}", f"/tmp/{SPRUNG}", f"pytorch_model/../../{SPRUNG}", f"..\\{SPRUNG}")
    path = with_config(folder) / "pytorch_model.bin"
    torch.save(bert_state(), path)
    with zipfile.ZipFile(path, "a") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return path


def compressed(folder: Path) -> Path:
    """A good checkpoint, packed again: mapped, its records would be taken for weights as they are."""
    path = with_config(folder) / "pytorch_model.bin"
    torch.save(bert_state(), folder / "plain")
    with (
        zipfile.ZipFile(folder / "plain") as plain,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for entry in plain.infolist():
            archive.writestr(entry.filename, plain.read(entry))
    return folder


def in_other_case(make: Callable[[Path], bytes]) -> Callable[[Path], Path]:
    """Torch finds `DATA.PKL` where it looks for `data.pkl`."""
    return lambda folder: zipped(make(folder), with_config(folder) / "model.pt", name="archive/DATA.PKL")


def in_both_cases(folder: Path) -> Path:
    good = pickle.dumps({"a": 1}, protocol=2)
    return zipped(good, with_config(folder) / "model.pt", {"archive/Data.Pkl": laughs(folder)})


def renamed_inside(folder: Path) -> Path:
    """The directory says `data.pkl`, the header of the record itself `data.txt`."""
    path = zipped(laughs(folder), with_config(folder) / "model.pt")
    path.write_bytes(path.read_bytes().replace(b"data.pkl", b"data.txt", 1))
    return path


def renamed_in_directory(new: bytes) -> Callable[[Path], Path]:
    """The first record is `data.pkl` by its own header alone."""

    def write(folder: Path) -> Path:
        path = zipped(laughs(folder), with_config(folder) / "model.pt")
        data = path.read_bytes()
        at = data.rindex(b"archive/data.pkl")
        path.write_bytes(data[:at] + new + data[at + len(new) :])
        return path

    return write


def padded(before: bytes = b"", after: bytes = b"") -> Callable[[Path], Path]:
    """A good checkpoint with bytes before or after the archive, or a comment."""

    def write(folder: Path) -> Path:
        path = with_config(folder) / "model.pt"
        torch.save(bert_state(), path)
        data = path.read_bytes()
        if after.startswith(b"#"):
            data = data[:-2] + struct.pack("<H", len(after))
        path.write_bytes(before + data + after)
        return path

    return write


def two_directories(folder: Path) -> Path:
    """A zip64 directory where the locator says, as torch reads; another where Python's reader looks."""
    buffer = io.BytesIO()
    torch.save(bert_state(), buffer)
    good = buffer.getvalue()
    bad = zipped(laughs(folder), folder / "bad").read_bytes()
    end = bad.rindex(b"PK\5\6")
    _, _, _, _, count, length, start, _ = struct.unpack("<4s4H2LH", bad[end:])
    bad_end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, start)
    first = bad[:end] + bad_end
    offset = len(first)
    # The good archive after the bad one, its places moved on.
    with zipfile.ZipFile(buffer) as archive:
        directory = archive.start_dir
        entries = len(archive.infolist())
    body, listed = good[:directory], good[directory : len(good) - 98]
    moved, at = bytearray(listed), 0
    while at < len(moved):
        name, extra, comment = struct.unpack_from("<3H", moved, at + 28)
        (place,) = struct.unpack_from("<L", moved, at + 42)
        struct.pack_into("<L", moved, at + 42, place + offset)
        at += 46 + name + extra + comment
    start = offset + len(body)
    good_end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, len(moved), start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, entries, entries, len(moved), start, 0)
    path = with_config(folder) / "model.pt"
    path.write_bytes(first + body + bytes(moved) + good_end + locator + last)
    return path


def old_tar(folder: Path) -> Path:
    """The format before 0.1.10: a tar file, here with names that lead out of it."""
    path = with_config(folder) / "model.pth"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("storages", "tensors", "pickle", f"../{SPRUNG}"):
            content = system(folder)
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def posing(folder: Path) -> Path:
    """Bags of attributes in the place of weights; taken for arrays they would show memory at any address."""
    interface = {"data": (4096, False), "typestr": "<f4", "version": 3}
    state = {
        name: Namespace(
            shape=tuple(value.shape), dtype="float32", __array_interface__=interface | {"shape": (8, 8)}
        )
        for name, value in bert_state().items()
    }
    torch.save(state, with_config(folder) / "pytorch_model.bin")
    return folder


def bag(state: bytes) -> bytes:
    """An `argparse.Namespace` under a weight's name, given this state by BUILD."""
    return b"\x80\x02}X\x01\x00\x00\x00acargparse\nNamespace\n)\x81" + state + b"s."


def bag_that_calls(folder: Path) -> bytes:
    """A state that would be given to `os.system` by a second BUILD."""
    command = f"touch {folder / SPRUNG}".encode()
    second = b"X" + struct.pack("<I", len(command)) + command + b"b"
    return bag(b"}X\x0c\x00\x00\x00__setstate__cos\nsystem\nsb" + second)


def bag_of_another_class(_folder: Path) -> bytes:
    """A state for slots, which sets attributes: `__class__` among them."""
    return bag(b"N}X\x09\x00\x00\x00__class__ccanary_module\nthing\ns\x86b")


def bag_in_itself(folder: Path) -> Path:
    held = Namespace()
    held.args = held.model = held.encoder_embed_dim = held
    torch.save({"args": held, "cfg": held, "model": {}}, with_config(folder) / "pytorch_model.bin")
    return folder


def loop(folder: Path) -> Path:
    """A table that holds itself where weights are looked for."""
    table: dict[str, Any] = OrderedDict()
    table["state_dict"] = table
    torch.save(table, with_config(folder) / "model.pt")
    return folder


FOREIGN = "but attnlaw only loads plain tensors"
DAMAGED = "not a complete PyTorch checkpoint"
FOLDER = "are not in one folder"
BYTES = "bytes before, between or after"
PICKLES = (
    *in_every_container("system", system, FOREIGN),
    *in_every_container("touch", touch, FOREIGN),
    *in_every_container("eval", evaluate, FOREIGN),
    *in_every_container("import", imports, FOREIGN),
    *in_every_container("stack-global", global_on_the_stack, DAMAGED),
    *in_every_container("inst", instance, DAMAGED),
    *in_every_container("inner-class", inner_class, FOREIGN),
    *in_every_container("torch-function", torch_function, FOREIGN),
    *in_every_container("bag-calls", bag_that_calls, FOREIGN),
    *in_every_container("bag-class", bag_of_another_class, FOREIGN),
    *in_every_container("bytearray", reserves, FOREIGN),
    *in_every_container("tensor", reserves_tensor, DAMAGED),
    *in_every_container("long-integer", long_integer, DAMAGED),
    *in_every_container("long-text", long_text, DAMAGED),
    *in_every_container("long-bytes", long_bytes, DAMAGED),
    *in_every_container("laughs", laughs, "it unpacks to more than"),
    *in_every_container("deep", deep, "deep"),
    Attack("stride-zero", spread, "is an expanded view of a"),
    Attack("past-the-record", outside_its_storage, DAMAGED),
    Attack("short-record", short_record, "the file of storage 1 has 64 bytes of 256"),
    *in_every_container("float-tensor", unfilled(torch.FloatTensor), "torch.FloatTensor without saying"),
    *in_every_container("any-tensor", unfilled(torch.Tensor), "torch.Tensor without saying"),
    *in_every_container("own-storage", unfilled_storage, "TypedStorage without saying"),
    *in_every_container("new-tensor", new_object, "torch.FloatTensor without saying"),
    Attack("computed-size", computed_size, "it does not contain the numbers of a tensor"),
    Attack("no-keys", numbers_left_out(beside=False), "are missing after it"),
    Attack("keys-beside-a-list", numbers_left_out(beside=True), "are missing after it"),
    Attack("attributes", with_attributes(torch.clone), "it has a tensor with extra"),
    Attack("attributes-of-parameters", with_attributes(torch.nn.Parameter), "it has a tensor with extra"),
    Attack("zip-bomb", bomb, "the files in its archive are compressed"),
    Attack("zip-compressed", compressed, "the files in its archive are compressed"),
    Attack("zip-upper-case-laughs", in_other_case(laughs), "it unpacks to more than"),
    Attack("zip-upper-case-deep", in_other_case(deep), "deep"),
    Attack("zip-both-cases", in_both_cases, "two files in its archive have the same name"),
    Attack("zip-renamed-inside", renamed_inside, DAMAGED),
    Attack("zip-renamed", renamed_in_directory(b"archive/data.pk_"), DAMAGED),
    Attack("zip-null", renamed_in_directory(b"archive/data\0pkl"), FOLDER),
    Attack("zip-backslash", renamed_in_directory(b"archive\\data.pkl"), FOLDER),
    Attack("zip-two-folders", renamed_in_directory(b"archivE2data.pkl"), FOLDER),
    Attack("zip-dot", renamed_in_directory(b"./chive/data.pkl"), FOLDER),
    Attack("zip-two-directories", two_directories, BYTES),
    Attack("zip-before", padded(before=b"PK\3\4" + bytes(60)), BYTES),
    Attack("zip-after", padded(after=bytes(60)), BYTES),
    Attack("zip-comment", padded(after=b"# a comment"), BYTES),
    Attack("zip-overlap", overlapping, "its archive claims to hold"),
    Attack("zip-escape", escaping, FOLDER),
    Attack("old-tar", old_tar, DAMAGED),
    Attack("bag-poses", posing, "no named tensors"),
    Attack("bag-in-itself", bag_in_itself, "no named tensors"),
    Attack("holds-itself", loop, "no named tensors"),
)
