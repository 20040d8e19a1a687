"""What a kept audit depends on: the files of the checkpoint, also if a copy has their size and their time."""

import os

from attnlaw.analysis.audit.units import file_state


def test_a_file_that_was_replaced_is_noticed(tmp_path):
    model, other = tmp_path / "model.safetensors", tmp_path / "other"
    model.write_bytes(b"before")
    state = file_state(str(tmp_path))
    assert file_state(str(tmp_path)) == state
    other.write_bytes(b"after!")
    times = model.stat()
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(model)
    replaced = file_state(str(tmp_path))
    assert replaced != state
    model.write_bytes(b"again!")
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file_state(str(tmp_path)) not in (state, replaced)


def test_a_directory_whose_name_is_not_utf8(tmp_path):
    folder = tmp_path / os.fsdecode(b"m\xff\xfe")
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"x")
    assert file_state(str(folder)) != file_state(str(tmp_path))
