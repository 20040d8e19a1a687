"""The one tree: the order of its leaves, other leaves in their places, and which of them are one matrix."""

from __future__ import annotations

from attnlaw.checkpoints.network import (
    GROUPS,
    KINDS,
    LAYER_GROUPS,
    Heads,
    Layer,
    Maps,
    MatrixLocation,
    Network,
)


def made() -> Network[str]:
    """Two layers: an encoder's with a gate, a decoder's with cross attention, a shared block and experts."""
    first = Layer(
        0, Heads(("q0", "q1"), ("v0", "v1")), feed_forward=Maps("in", "out", "gate"), stack="encoder"
    )
    second = Layer(
        1,
        Heads(("q",), ("v",)),
        cross=Heads(("cq",), ("cv",)),
        feed_forward=Maps("shared in", "shared out"),
        experts=(Maps("in 0", "out 0"), Maps("in 1", "out 1", "gate 1")),
        stack="decoder",
        router_sum=2.5,
    )
    beside = ((MatrixLocation(None, "embedding"), "E"),)
    return Network((first, second), (0, 1, 1), (8,), "gelu", beside)


def test_leaves_come_in_the_order_of_rows() -> None:
    expected = [
        (MatrixLocation(0, "qk", "encoder", head=0), "q0"),
        (MatrixLocation(0, "qk", "encoder", head=1), "q1"),
        (MatrixLocation(0, "vo", "encoder", head=0), "v0"),
        (MatrixLocation(0, "vo", "encoder", head=1), "v1"),
        (MatrixLocation(0, "ffn_in", "encoder"), "in"),
        (MatrixLocation(0, "ffn_gate", "encoder"), "gate"),
        (MatrixLocation(0, "ffn_out", "encoder"), "out"),
        (MatrixLocation(1, "qk", "decoder", head=0), "q"),
        (MatrixLocation(1, "vo", "decoder", head=0), "v"),
        (MatrixLocation(1, "cross_qk", "decoder", head=0), "cq"),
        (MatrixLocation(1, "cross_vo", "decoder", head=0), "cv"),
        (MatrixLocation(1, "ffn_in", "decoder"), "shared in"),
        (MatrixLocation(1, "ffn_out", "decoder"), "shared out"),
        (MatrixLocation(1, "ffn_in", "decoder", expert=0), "in 0"),
        (MatrixLocation(1, "ffn_out", "decoder", expert=0), "out 0"),
        (MatrixLocation(1, "ffn_in", "decoder", expert=1), "in 1"),
        (MatrixLocation(1, "ffn_gate", "decoder", expert=1), "gate 1"),
        (MatrixLocation(1, "ffn_out", "decoder", expert=1), "out 1"),
        (MatrixLocation(None, "embedding"), "E"),
    ]
    assert made().leaves() == expected
    assert {location.kind for location, _ in expected} <= KINDS.keys()


def test_other_leaves_stand_where_the_old_ones_stood() -> None:
    """Also None, which is a leaf like any other, and twice in a row."""
    tree = made()
    numbers = tree.with_leaves(range(len(tree.leaves())))
    assert [leaf for _, leaf in numbers.leaves()] == list(range(19))
    assert numbers.layers[1].experts[1].gate == 16
    assert numbers.layers[1].router_sum == 2.5
    nothing = tree.map(lambda location, leaf: None)
    again = nothing.with_leaves(leaf for _, leaf in tree.leaves())
    assert again == tree


def test_every_application_is_a_layer_and_keeps_its_place() -> None:
    tree = made().unroll()
    assert (tree.depth, tree.applications) == (3, (0, 1, 2))
    assert [layer.index for layer in tree.layers] == [0, 1, 1]
    assert len(tree.leaves()) == 7 + 11 + 11 + 1


def test_groups_have_every_kind_that_can_be_chosen() -> None:
    assert [kind for kinds in GROUPS.values() for kind in kinds] == [kind for kind in KINDS if kind != "lora"]
    assert list(LAYER_GROUPS) == ["qk", "vo", "cross", "ffn"]
