"""The shipped models: each by the name of its repository, with the parameters that its card or its weights state."""

from __future__ import annotations

import pytest

from predict.huggingface.config_json import load_model
from predict.model.shipped import notes_on_name, read_as, shipped_model, shipped_models

OWN = {
    *("demo-llama", "library-llama", "long-llama", "small-llama", "tiny-gpt", "tiny-llama", "uneven-llama"),
    *("gpu-llama-1b", "gpu-llama-3b", "gpu-llama-narrow", "gpu-llama-wide", "gpu-mixture-1b"),
}
"""Models of runs that come with the project; nobody else knows them."""
ON_THEIR_CARDS = {
    "01-ai/Yi-34B": 34_388_917_248,
    "01-ai/Yi-6B": 6_061_035_520,
    "01-ai/Yi-9B": 8_829_407_232,
    "allenai/OLMo-2-0325-32B": 32_234_279_936,
    "allenai/OLMo-2-0425-1B": 1_484_916_736,
    "allenai/OLMo-2-1124-13B": 13_716_198_400,
    "allenai/OLMo-2-1124-7B": 7_298_617_344,
    "allenai/Olmo-3-1025-7B": 7_298_011_136,
    "allenai/Olmo-3-1125-32B": 32_233_522_176,
    "answerdotai/ModernBERT-base": 149_655_232,
    "answerdotai/ModernBERT-large": 395_881_664,
    "baidu/ERNIE-4.5-0.3B-PT": 360_748_032,
    "baidu/ERNIE-4.5-21B-A3B-PT": 21_825_437_888,
    "baidu/ERNIE-4.5-300B-A47B-PT": 299_472_000_000,
    "ByteDance-Seed/Seed-OSS-36B-Instruct": 36_151_104_512,
    "black-forest-labs/FLUX.1-dev": 11_901_408_320,
    "black-forest-labs/FLUX.1-schnell": 11_891_178_560,
    "codellama/CodeLlama-34b-hf": 33_743_970_304,
    "codellama/CodeLlama-7b-hf": 6_738_546_688,
    "facebookresearch/DiT-L-2": 458_000_000,
    "facebookresearch/DiT-XL-2": 674_834_720,
    "Wan-AI/Wan2.1-T2V-1.3B": 1_418_996_800,
    "Wan-AI/Wan2.1-T2V-14B": 14_288_491_584,
    "deepseek-ai/deepseek-llm-67b-base": 67_425_001_472,
    "deepseek-ai/deepseek-llm-7b-base": 6_910_365_696,
    "deepseek-ai/DeepSeek-V2": 235_741_434_880,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "deepseek-ai/DeepSeek-V3": 671_026_404_352,
    "deepseek-ai/DeepSeek-V3.2-Exp": 671_877_944_064,
    "EleutherAI/gpt-neox-20b": 20_554_567_680,
    "EleutherAI/pythia-1.4b": 1_414_647_808,
    "EleutherAI/pythia-12b": 11_846_072_320,
    "EleutherAI/pythia-160m": 162_322_944,
    "EleutherAI/pythia-1b": 1_011_781_632,
    "EleutherAI/pythia-2.8b": 2_775_208_960,
    "EleutherAI/pythia-410m": 405_334_016,
    "EleutherAI/pythia-6.9b": 6_857_302_016,
    "google-bert/bert-base-uncased": 109_514_298,
    "google-bert/bert-large-uncased": 335_174_458,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-9b-it": 9_241_705_984,
    "google/gemma-3-12b-it": 11_766_034_176,
    "google/gemma-3-1b-it": 999_885_952,
    "google/gemma-3-270m": 268_098_176,
    "google/gemma-3-27b-it": 27_009_346_304,
    "google/gemma-3-4b-it": 3_880_263_168,
    "gpt3-175b": 174_600_000_000,
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1_711_376_384,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "HuggingFaceTB/SmolLM2-360M": 361_821_120,
    "HuggingFaceTB/SmolLM3-3B": 3_075_098_624,
    "ibm-fms/Bamba-9B": 9_780_235_392,
    "ibm-granite/granite-4.0-1b": 1_631_000_000,
    "ibm-granite/granite-4.0-350m": 352_378_880,
    "ibm-granite/granite-4.0-h-1b": 1_461_000_000,
    "ibm-granite/granite-4.0-h-micro": 3_191_396_096,
    "ibm-granite/granite-4.0-h-small": 32_207_337_984,
    "ibm-granite/granite-4.0-h-tiny": 6_939_037_248,
    "ibm-granite/granite-4.0-micro": 3_402_836_480,
    "LiquidAI/LFM2-1.2B": 1_170_340_608,
    "LiquidAI/LFM2-350M": 354_483_968,
    "LiquidAI/LFM2-700M": 742_489_344,
    "LiquidAI/LFM2-8B-A1B": 8_339_929_856,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.1-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-4-Maverick-17B-128E": 400_710_000_000,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 107_770_000_000,
    "meta-llama/Meta-Llama-3-70B": 70_553_706_496,
    "meta-llama/Meta-Llama-3-8B": 8_030_261_248,
    "microsoft/Phi-3-medium-4k-instruct": 13_960_238_080,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "microsoft/Phi-3.5-mini-instruct": 3_821_079_552,
    "microsoft/phi-4": 14_659_507_200,
    "microsoft/Phi-4-mini-instruct": 3_836_021_760,
    "MiniMaxAI/MiniMax-M2": 228_689_748_992,
    "mistralai/Codestral-22B-v0.1": 22_247_282_688,
    "mistralai/Ministral-3-14B-Instruct-2512": 13_510_000_000,
    "mistralai/Ministral-3-3B-Instruct-2512": 3_429_000_000,
    "mistralai/Ministral-3-8B-Instruct-2512": 8_490_000_000,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mistral-Large-Instruct-2411": 122_610_069_504,
    "mistralai/Mistral-Nemo-Base-2407": 12_247_782_400,
    "mistralai/Mistral-Small-24B-Instruct-2501": 23_572_403_200,
    "mistralai/Mistral-Small-Instruct-2409": 22_247_282_688,
    "mistralai/Mixtral-8x22B-v0.1": 140_620_634_112,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "moonshotai/Kimi-K2-Instruct": 1_026_408_235_864,
    "moonshotai/Kimi-K2.5": 1_026_408_235_864,  # the decoder of Kimi-K2
    "moonshotai/Moonlight-16B-A3B": 15_960_111_936,
    "nvidia/Nemotron-H-8B-Base-8K": 8_100_000_000,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31_577_937_344,
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": 120_600_000_000,
    "nvidia/NVIDIA-Nemotron-Nano-12B-v2": 12_310_000_000,
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": 8_888_227_328,
    "openai-community/gpt2": 124_439_808,
    "openai-community/gpt2-large": 774_030_080,
    "openai-community/gpt2-medium": 354_823_168,
    "openai-community/gpt2-xl": 1_557_611_200,
    "openai/gpt-oss-120b": 116_829_156_672,
    "openai/gpt-oss-20b": 20_914_757_184,
    "Qwen/Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "Qwen/Qwen2-57B-A14B": 57_408_658_944,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-14B-Instruct": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B-Base": 1_720_574_976,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-4B-Instruct-2507": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480_154_875_392,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 79_674_391_296,
    "Qwen/Qwen3.5-35B-A3B": 34_660_610_688,
    "Qwen/Qwen3.5-397B-A17B": 397_000_000_000 - 456_000_000,  # its name, less the tower of its config.json
    "Qwen/QwQ-32B": 32_763_876_352,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
    "zai-org/GLM-4.5": 352_797_829_120,
    "zai-org/GLM-4.5-Air": 106_852_245_504,
    "zai-org/GLM-4.6": 352_797_829_120,
    "zai-org/GLM-4.7-Flash": 29_943_390_976,
    "zai-org/GLM-5": 744_000_000_000,
}
"""Repository → parameters, shared ones once, of the text decoder alone, without layers of multi-token prediction."""


WITH_TOWERS = {
    "google-t5/t5-11b": 11_307_321_344,
    "google-t5/t5-3b": 2_851_598_336,
    "google-t5/t5-base": 222_903_552,
    "google-t5/t5-large": 737_668_096,
    "google-t5/t5-small": 60_506_624,
    "google/flan-t5-base": 247_577_856,
    "google/flan-t5-large": 783_150_080,
    "google/flan-t5-small": 76_961_152,
    "google/flan-t5-xl": 2_849_757_184,
    "google/flan-t5-xxl": 11_135_332_352,
    "google/gemma-3-12b-it": 12_187_325_040,
    "google/gemma-3-27b-it": 27_432_406_640,
    "google/gemma-3-4b-it": 4_300_079_472,
    "meta-llama/Llama-3.2-11B-Vision-Instruct": 10_670_220_835,
    "meta-llama/Llama-3.2-90B-Vision-Instruct": 88_600_000_000,
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": 24_011_361_280,
    "OpenGVLab/InternVL3-14B": 15_100_000_000,
    "OpenGVLab/InternVL3-1B": 938_000_000,
    "OpenGVLab/InternVL3-2B": 2_090_000_000,
    "OpenGVLab/InternVL3-38B": 38_400_000_000,
    "OpenGVLab/InternVL3-78B": 78_400_000_000,
    "OpenGVLab/InternVL3-8B": 7_940_000_000,
    "OpenGVLab/InternVL3.5-14B": 15_100_000_000,
    "OpenGVLab/InternVL3.5-38B": 38_400_000_000,
    "OpenGVLab/InternVL3.5-4B": 4_730_000_000,
    "OpenGVLab/InternVL3.5-8B": 8_530_000_000,
    "openai/whisper-base": 72_593_920,
    "openai/whisper-large-v2": 1_543_304_960,
    "openai/whisper-large-v3": 1_543_490_560,
    "openai/whisper-large-v3-turbo": 808_878_080,
    "openai/whisper-medium": 763_857_920,
    "openai/whisper-small": 241_734_912,
    "openai/whisper-tiny": 37_760_640,
    "Qwen/Qwen2-VL-2B-Instruct": 2_208_985_600,
    "Qwen/Qwen2-VL-72B-Instruct": 73_405_560_320,
    "Qwen/Qwen2-VL-7B-Instruct": 8_291_375_616,
    "Qwen/Qwen2.5-VL-32B-Instruct": 33_452_718_336,
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-72B-Instruct": 73_410_777_344,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen/Qwen3-VL-235B-A22B-Instruct": 235_700_000_000,
    "Qwen/Qwen3-VL-2B-Instruct": 2_127_532_032,
    "Qwen/Qwen3-VL-30B-A3B-Instruct": 31_070_754_032,
    "Qwen/Qwen3-VL-32B-Instruct": 33_400_000_000,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen3-VL-8B-Instruct": 8_767_123_696,
}
"""Repository → parameters with the vision tower and its projectors, or with the encoder."""


@pytest.mark.parametrize("repository", WITH_TOWERS)
def test_a_model_with_a_tower_or_an_encoder_has_the_parameters_of_its_card(repository: str) -> None:
    path = shipped_model(repository)
    assert path is not None
    assert load_model(path).parameters_with_tower == pytest.approx(WITH_TOWERS[repository], rel=0.003)


@pytest.mark.parametrize("repository", ON_THEIR_CARDS)
def test_a_model_goes_by_its_repository_and_has_the_parameters_of_its_card(repository: str) -> None:
    path = shipped_model(repository)
    assert path is not None
    assert load_model(path).parameters == pytest.approx(ON_THEIR_CARDS[repository], rel=1e-3)


def test_every_shipped_model_has_a_card() -> None:
    repositories = {*ON_THEIR_CARDS, *WITH_TOWERS}
    carded = {path.stem for repository in repositories if (path := shipped_model(repository))}
    assert carded | OWN == set(shipped_models())
    assert len(carded) == len(repositories) >= 150


@pytest.mark.parametrize(
    ("repository", "model"),
    [
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("nvidia/Llama-3.1-405B-Instruct-FP8", "llama3.1-405b"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2"),
        ("zai-org/GLM-5.1-FP8", "glm5"),
        ("mistralai/Mistral-7B-Instruct-v0.2", None),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama3.1-70b"),
        ("unsloth/llama-3-8b-bnb-4bit", "llama3-8b"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "qwen3-coder-480b-a35b"),
        ("Qwen/Qwen2-7B-Instruct", "qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama3.1-8b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", None),  # its head is a matrix of its own
        ("R1-Distill-Qwen-7B", "qwen2.5-7b"),
        ("deepseek-ai/deepseek-math-7b-base", None),
    ],
)
def test_what_it_was_tuned_for_does_not_matter_but_a_version_of_other_sizes_does(
    repository: str, model: str | None
) -> None:
    path = shipped_model(repository)
    assert (path.stem if path else None) == model


def test_a_name_that_stands_for_a_model_of_its_shape_is_said() -> None:
    assert read_as("qwen2-7b").startswith("qwen2-7b is read as the shipped qwen2.5-7b")
    assert read_as("qwen2.5-7b") == read_as("./config.json") == ""


@pytest.mark.parametrize("name, alone", [("moonshotai/Kimi-K2.5", True), ("kimi-k2", False), ("qwen2.5-vl-7b", False)])
def test_a_model_whose_tower_is_not_known_is_said_to_be_its_text_alone(name: str, alone: bool) -> None:
    assert any("is the text part alone" in note for note in notes_on_name(name)) == alone
