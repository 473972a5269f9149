"""Rules of what stands beside the text of a sequence: images, the tokens of an encoder, patches."""

from predict.config.rules.rule import Problems, rule
from predict.model.spec import ModelSpec
from predict.run.lengths import PACKED, PADDED
from predict.run.vision import ALL


@rule("vision.images", "images for a model whose vision tower is not known", of_each_model=True)
def images_need_a_tower(images: int, model: ModelSpec) -> Problems:
    if images and (model.tower is None or model.is_encoder_decoder):
        yield (
            f"{images}, and the vision tower of {model.name} is not known; take a model whose config.json has a vision_config "
            "that is read, such as qwen2.5-vl-7b, or set it to 0"
        )


@rule("vision.image_tokens", "images of no size, or of another than the model's", of_each_model=True)
def images_have_a_size(images: int, image_tokens: int, model: ModelSpec) -> Problems:
    patches = model.tower.patches if model.tower else None
    if not images or patches is None:
        return
    if not (image_tokens or patches.tokens):
        yield f"missing, and images of {model.name} have any size; give the tokens of the text that one becomes, such as 256"
    elif image_tokens and patches.tokens not in (0, image_tokens):
        yield f"{image_tokens}, but every image of {model.name} becomes {patches.tokens} tokens; omit it"


@rule("vision.images", "images that become more tokens than the sequence has", of_each_model=True)
def images_fit_into_the_sequence(
    images: int, image_tokens: int, seq_len: int, shortest_tokens: int, model: ModelSpec
) -> Problems:
    patches = model.tower.patches if model.tower else None
    tokens = images * (image_tokens or patches.tokens) if patches and not patches.attended else 0
    if tokens > shortest_tokens:
        cut = f", whose shortest has {shortest_tokens}" if shortest_tokens < seq_len else ""
        yield f"{images} become {tokens} tokens of a sequence of batch.seq_len {seq_len}{cut}; take fewer, or longer sequences"


@rule("vision.images", "no images for a model whose layers attend to them", of_each_model=True)
def layers_that_attend_to_images_have_some(images: int, model: ModelSpec) -> Problems:
    if model.encoder and not (images or model.is_encoder_decoder):
        yield f"{images}, and layers of {model.name} attend to images, without which they are left out; give 1 or more"


@rule("batch.encoder_seq_len", "an encoder without a length, or a length that it has not", of_each_model=True)
def encoders_have_a_length(encoder_seq_len: int, model: ModelSpec) -> Problems:
    if not (model.encoder and model.is_encoder_decoder):
        if encoder_seq_len:
            yield f"{encoder_seq_len}, and {model.name} is no encoder–decoder; omit it"
        return
    fixed = model.encoder.tokens
    if not (encoder_seq_len or fixed):
        yield f"missing, and the encoder of {model.name} reads any number of tokens; give it, such as 512"
    elif encoder_seq_len and fixed not in (0, encoder_seq_len):
        yield f"{encoder_seq_len}, but the encoder of {model.name} always reads {fixed}; omit it"


@rule("batch.padding", "rows of several sequences beside one of an encoder")
def rows_beside_an_encoder_are_single(padding: str, model: ModelSpec) -> Problems:
    if padding == PACKED and model.is_encoder_decoder:
        yield f"{PACKED}, and each row of {model.name} has one sequence of its encoder; set {PADDED}"


@rule("plan.pp", "several pipeline stages of a model whose layers attend to its encoder's output")
def what_is_attended_to_is_on_one_stage(pp: int, model: ModelSpec) -> Problems:
    if model.encoder and pp > 1:
        yield (
            f"{pp} stages: layers on each of them read what the encoder of {model.name} makes on the first, and Megatron-LM, which sent it on, "
            "removed stages of encoders in July 2025; set it to 1, and plan.tp or plan.zero higher"
        )


@rule("batch.seq_len", "a sequence that is no longer than the text in it")
def sequences_have_patches(seq_len: int, model: ModelSpec) -> Problems:
    text = model.patches.text_tokens if model.patches else 0
    if text and seq_len <= text:
        yield f"{seq_len}, of which {text} are the text of {model.name}; add the patches of its images, such as {text + 4096}"


@rule("vision.trained", "a choice of what is trained of a vision tower, without images")
def what_is_trained_of_a_tower_needs_images(images: int, trained: str) -> Problems:
    if trained != ALL and not images:
        yield f"{trained} without vision.images changes nothing; give them, or omit it"
