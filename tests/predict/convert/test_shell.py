"""Commands of shell scripts: what the script decides is followed, and nothing is run."""

import pytest

from predict.convert.shell import read_shell
from predict.convert.shell_words import arguments_in


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("TP_SIZE=4; PP_SIZE=4\nrun.py --tp $TP_SIZE --pp ${PP_SIZE}", "--tp 4 --pp 4"),
        ("N=${N:-8}; W=$(($N*4))\nrun.py --w $W --half $((W / 2))", "--w 32 --half 16"),
        ("A=(--a 1 # --b 2\n  --c)\nA+=(--d)\nrun.py ${A[@]}", "--a 1 --c --d"),
        ('A=(--x 1)\nCMD="run.py ${A[@]} $@"\neval $CMD', "--x 1"),
        ('if [[ "a" == "b" ]]; then X=1; elif [ -z "$Y" ]; then X=2; else X=3; fi\nrun.py --x $X', "--x 2"),
        ("if [ 3 -gt 2 ]\nthen\n  run.py --yes\nelse\n  run.py --no\nfi", "--yes"),
        ("if [ $(wc -l) -gt 2 ]; then X=1; else X=1; fi\nrun.py --x $X", "--x 1"),
        ("if [ $(wc -l) -gt 2 ]; then X=1; else X=2; fi\nrun.py --x $X", "--x $X"),
        ("case b in\n a) X=1 ;;\n b|c) X=2 ;;\nesac\nrun.py --x $X", "--x 2"),
        ("for s in 7; do\n run.py --s $s\ndone", "--s 7"),
        ("f() {\n run.py --in\n}\nf", "--in"),
        ("#SBATCH --nodes=4\nrun.py --nnodes $SLURM_NNODES", "--nnodes 4"),
        ("srun bash -c 'run.py --a 1' 2>&1 | tee log", "--a 1"),
        ("sbatch <<EOF\nrun.py --a 1\nEOF", "--a 1"),
        ("M=/models/Qwen3-8B\nrun.py --m ${M##*/} --n 'a b'", "--m Qwen3-8B --n a b"),
        ("run.py --freq ([0]*3+[1]*58) --end", "--freq ([0]*3+[1]*58) --end"),
        ("X=4\nX=2 other.py\nrun.py --x $X", "--x 4"),
        ("run.py --x $1 \\\n  --y 2 # --z 3", "--x $1 --y 2"),
        ('A=()\n[ "$FP8" = 1 ] && A+=(--fp8)\nrun.py ${A[@]}', ""),
        ("TP=1\n[[ $TP -gt 1 ]] || X=--plain\nrun.py $X", "--plain"),
        ("[ -z $X ] && { X=1; Y=2; }\n[ -n $X ] || { Y=3; }\nrun.py $X $Y", "1 2"),
        ("A=2; B=3\nif [[ $A == 1 || $B == 3 ]]; then X=1; else X=2; fi\nrun.py $X", "1"),
        ("A=2; B=3\nif [[ $A == 2 && $B == 2 ]]; then X=1; else X=2; fi\nrun.py $X", "2"),
        ('if [ "$FP8" -eq 1 ]; then X=1; else X=2; fi\nrun.py $X', "2"),
        ('if [[ "$FP8" -eq 0 ]]; then X=1; else X=2; fi\nrun.py $X', "1"),
        ("A=2\nif (( A > 1 )); then X=1; fi\n(( B )) && X=2\nrun.py $X", "1"),
        ("if (( ${B:-0} )); then X=1; else X=2; fi\nrun.py $X", "2"),
        ("USE=false\nif $USE; then X=1; else X=2; fi\nrun.py $X", "2"),
        ("cd /there && run.py --a 1 || exit 1", "--a 1"),
        ("X=1; grep -q H100 /proc/x && X=2\nrun.py --x $X", "--x $X"),
        ('read -r X <<< "one"\nrun.py --a 1', "--a 1"),
        (": ${X:=2}\nrun.py $X", "2"),
        ("run.py --a 1 > log.txt 2>&1", "--a 1"),
        ("read -r -d '' A <<EOF\n--a 1\nEOF\nrun.py $A", "--a 1"),
        ("A=$(cat <<EOF\n--a 1\nEOF\n)\nrun.py $A", "--a 1"),
        ("run.py --a 1 \\\n  # --b 2 \\\n  --c 3", "--a 1"),
        ('run.py --a "1 # 2" \\\n  --c 3', "--a 1 # 2 --c 3"),
        ('A="--a 1 \\\n --b 2"\nB=(--c 3 # --d 4 \\\n  --e 5)\nrun.py $A ${B[@]}', "--a 1 --b 2 --c 3 --e 5"),
        ("! run.py --a 1", "--a 1"),
        ("if ! run.py --a 1; then echo failed; exit 1; fi", "--a 1"),
    ],
)
def test_a_command_has_the_words_that_the_script_gives_it(text: str, words: str) -> None:
    commands = [command for command in read_shell(text).commands if command[0] == "run.py"]
    assert [" ".join(command[1:]) for command in commands] == [words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=(--a)\nif [ -f x ]; then A+=(--b 2); fi\nrun.py ${A[@]}", "--a --b 2"),
        ('A="--a"\nif [ -f x ]; then A="$A --b 2"; fi\nrun.py $A', "--a --b 2"),
        ('A="--a"\n[ -d x ] && A+=" --b 2"\nrun.py $A', "--a --b 2"),
        ('if [ -f x ]; then A="--b 2"; fi\nrun.py --a $A', "--a --b 2"),
        ('if [ -f x ]; then A="--b 2"; else A="--b 4"; fi\nrun.py --a $A', "--a --b 2"),
        ("if [ -f x ]; then A=(--a --b 2); else A=(--a --b 4); fi\nrun.py ${A[@]}", "--a --b 2"),
    ],
)
def test_arguments_that_a_condition_adds_which_the_script_leaves_open_are_kept_and_named(text: str, words: str) -> None:
    script = read_shell(text)
    assert [" ".join(command[1:]) for command in script.commands] == [words]
    assert script.assumed == {"--b"}


def test_here_documents_are_files() -> None:
    script = read_shell('S=3\nJ="./ds.json"\ncat <<EOT > $J\n{"stage": $S}\nEOT\nrun.py --ds $J')
    assert script.files == {"ds.json": '{"stage": 3}'}
    assert script.commands == (("run.py", "--ds", "./ds.json"),)


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("NNODES=2 run.py", {"NNODES": "2"}),
        ("NNODES=2 other.py; run.py", {}),
        ("export NNODES=4\nNNODES=2 other.py\nrun.py", {"NNODES": "4"}),
        ("NNODES=2\nrun.py", {}),
        ("NNODES=2\nexport NNODES\nrun.py", {"NNODES": "2"}),
        ("declare -x NNODES=2; run.py", {"NNODES": "2"}),
        ("f() {\n run.py\n}\nNNODES=2 f", {"NNODES": "2"}),
        ("NNODES=2 bash -c 'run.py'", {"NNODES": "2"}),
    ],
)
def test_an_assignment_before_a_command_is_its_own_and_an_exported_one_all_have(
    text: str, environment: dict[str, str]
) -> None:
    script = read_shell(text)
    assert script.environments[script.commands.index(("run.py",))] == environment


def test_words_are_arguments() -> None:
    words = [
        "--a-b",
        "4",
        "--flag=7",
        "--bf16",
        "data.parquet",
        "--many",
        "1",
        "2",
        "+x.y=[1,2]",
        "-tp",
        "2",
        "--rest",
        "$X",
    ]
    expected = {"a_b": "4", "flag": "7", "bf16": True, "many": ["1", "2"], "x.y": "[1,2]", "tp": "2", "rest": "$X"}
    assert arguments_in(words, frozenset({"bf16"})) == expected


def test_variables_that_grow_are_not_followed_for_ever() -> None:
    lines = [f'A{n}="$A{n + 1}$A{n + 1}$A{n + 1}$A{n + 1}"' for n in range(40, -1, -1)]
    assert read_shell("\n".join(['A41="--x"', *lines, "run.py --lr $A0 --bf16"])).commands[0][-1] == "--bf16"


@pytest.mark.parametrize(
    "text",
    [
        "&& && ",
        "! | ",
        "a || ;",
        "[[ ",
        "{ ",
        "if",
        "((((",
        "${",
        "'",
        '"',
        "case",
        "for x in",
        "f() {",
        "<<EOF",
        "a=(",
        "$((",
    ],
)
def test_a_broken_script_ends(text: str) -> None:
    read_shell(text * 50)
