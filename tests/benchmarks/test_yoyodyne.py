"""The peer is given the sizes of our recipes."""

from pathlib import Path

import pytest
import yaml
from benchmarks.yoyodyne import NETWORKS, peer_errors, theirs


def configured(network, folder):
    command = theirs(NETWORKS[network], Path("peer"), Path("train.tsv"), Path("dev.tsv"), folder, {})
    assert command[:3] == ["peer", "fit", "--config"]
    return yaml.safe_load(Path(command[3]).read_text(encoding="utf-8"))


@pytest.mark.parametrize("network", NETWORKS)
def test_what_both_networks_have_in_common(network, tmp_path):
    config = configured(network, tmp_path)
    model, recipe = config["model"]["init_args"], NETWORKS[network].recipe
    assert model["enforce_monotonic"] is True
    assert config["data"]["batch_size"] == recipe.data.batch_size
    assert model["embedding_size"] == recipe.model.embedding_size
    assert model["decoder_dropout"] == model["source_encoder"]["init_args"]["dropout"] == recipe.model.dropout


def test_the_sizes_of_the_recurrent_network(tmp_path):
    model, sizes = configured("lstm", tmp_path)["model"], NETWORKS["lstm"].recipe.model
    assert model["class_path"].endswith("HardAttentionLSTMModel")
    assert 2 * model["init_args"]["source_encoder"]["init_args"]["hidden_size"] == sizes.memory_size
    assert model["init_args"]["decoder_hidden_size"] == sizes.decoder_size


def test_the_sizes_of_the_transformer(tmp_path):
    model, sizes = configured("transformer", tmp_path)["model"], NETWORKS["transformer"].recipe.model
    assert model["class_path"].endswith("HardAttentionTransformerModel")
    encoder = model["init_args"]["source_encoder"]["init_args"]
    assert encoder["embedding_size"] == sizes.encoder.width == sizes.decoder.width
    assert (encoder["layers"], encoder["hidden_size"]) == (sizes.encoder.layers, sizes.encoder.feed_forward)
    assert model["init_args"]["decoder_layers"] == sizes.decoder.layers
    assert model["init_args"]["decoder_attention_heads"] == sizes.decoder.heads


def test_errors_are_read_from_the_journal_of_the_peer_alone(tmp_path):
    for name, text in {
        "ours/logs/csv/version_0": "step,valid/nll\n25,1.5\n",
        "peer/lightning_logs/version_0": "epoch,step,train_loss,val_accuracy,val_loss\n"
        "0,249,,0.25,0.3\n0,249,0.9,,\n1,499,,0.521,0.2\n",
    }.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "metrics.csv").write_text(text, encoding="utf-8")
    assert peer_errors(tmp_path) == [75.0, 47.9]
