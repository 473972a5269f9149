"""What a command line's faults are said to be, all of them at once and each with its fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampling.arguments import Parser
from sampling.errors import UserError


def made() -> Parser:
    parser = Parser(prog="pack", add_help=False)
    parser.commands_with = {"--oven": ["bake"], "--pan": list("abcdefgh")}.get  # type: ignore[assignment]
    parser.add_argument("box", metavar="BOX")
    parser.add_argument("-n", "--number", type=int, required=True, metavar="N")
    parser.add_argument("--share", type=float, metavar="SHARE")
    parser.add_argument("--shape", choices=("round", "square"))
    parser.add_argument("--shade", metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--csv", action="store_true")
    return parser


WELL = ("a", "-n", "3")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ((), "BOX and --number: missing; write `pack BOX --number N`"),
        (("a",), "--number: missing; write `pack BOX --number N`"),
        (("a", "-n"), "--number: lacks its value; write --number N"),
        ((*WELL, "--shape"), "--shape: lacks its value; write --shape round|square"),
        ((*WELL, "--shape", "roun"), "--shape: 'roun' is not known; give one of round, square; did you mean 'round'?"),
        (("a", "-n", "x"), "--number: 'x' is not a whole number; give a whole number, without a unit"),
        ((*WELL, "--share", "3s"), "--share: '3s' is not a number; give a number, without a unit"),
        ((*WELL, "--share", "-3s"), "--share: -3s is below 0; give a value above 0"),
        ((*WELL, "--output", ""), "--output: its value is empty; give one"),
        (("", "-n", "3"), "BOX: its value is empty; give one"),
        ((*WELL, "--csv=3"), "--csv: takes no value, but '3' is given; omit that"),
        ((*WELL, "--sha", "x"), "--sha: is the start of --share, --shape, --shade; write one of them in full"),
        ((*WELL, "b", "c"), "b c: one too many for `pack`; omit it"),
        ((*WELL, "--outptu", "f"), "--outptu f: `pack` has no option --outptu; did you mean '--output'?"),
        ((*WELL, "--xyz"), "--xyz: `pack` has no option --xyz; omit it"),
        ((*WELL, "--oven", "5"), "--oven 5: `pack` has no option --oven, which is of bake; omit it"),
        ((*WELL, "--pan"), "--pan: `pack` has no option --pan, which is of a, b, c, d, e, f and 2 more; omit it"),
    ],
)
def test_a_fault_is_named_with_its_fix(words: tuple[str, ...], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((UserError, SystemExit)) as raised:
        made().parse_args(words)
    said = str(raised.value) if isinstance(raised.value, UserError) else capsys.readouterr().err
    assert said.removesuffix("\n").endswith(fault)
    assert getattr(raised.value, "exit_code", None) or raised.value.code == 2  # type: ignore[union-attr]


def test_all_faults_are_one_message_and_with_json_no_usage() -> None:
    with pytest.raises(UserError) as error:
        made().parse_args(["--json", "--share", "x", "--shape", "oval", "--number", "--xyz"])
    assert str(error.value).splitlines() == [
        "--share: 'x' is not a number; give a number, without a unit",
        "--shape: 'oval' is not known; give one of round, square",
        "--number: lacks its value; write --number N",
        "BOX: missing; write `pack BOX --number N`",
        "--xyz: `pack` has no option --xyz; omit it",
    ]


def test_two_that_exclude_each_other() -> None:
    with pytest.raises(UserError, match="--csv: cannot be combined with --json; omit one of them"):
        made().parse_args([*WELL, "--json", "--csv"])


def test_operands_behind_an_option_are_read_as_those_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="weigh")
    parser.add_argument("boxes", nargs="+", type=Path, metavar="BOX")
    parser.add_argument("--csv", action="store_true")
    assert parser.parse_args(["a", "--csv", "b"]).boxes == [Path("a"), Path("b")]
    with pytest.raises(SystemExit):
        parser.parse_args(["a", "--csv", ""])
    assert capsys.readouterr().err.endswith("weigh: error: BOX: its value is empty; give one\n")
