"""JoeyNMT behind a pipe: run by the Python of its own environment, it knows nothing of latentalign.

It reads a task (a JSON file: sizes, batches of pieces, sentences) and then commands, one JSON object a line, from
standard input; each is answered by one JSON object on standard output.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.batch import Batch
from joeynmt.config import parse_global_args
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.training import TrainManager
from joeynmt.vocabulary import Vocabulary

UNKNOWN, PAD, START, END = 0, 1, 2, 3
SYMBOLS = {"unk_id": UNKNOWN, "pad_id": PAD, "bos_id": START, "eos_id": END}


class Peer:
    """A recurrent model with input feeding, or a Transformer, trained and searched by JoeyNMT's own code."""

    def __init__(self, task: dict[str, Any], folder: str) -> None:
        torch.manual_seed(1)
        torch.set_num_threads(task["threads"])
        self.config = parse_global_args(configuration(task, folder))
        symbols = self.config.data["special_symbols"]
        self.model = build_model(
            self.config.model,
            vocabulary(task["source_size"], symbols),
            vocabulary(task["target_size"], symbols),
        )
        train = self.config.train
        self.model.loss_function = (train.loss, train.label_smoothing)
        self.manager = TrainManager(
            rank=0,
            model=self.model,
            model_dir=Path(folder),
            device=self.config.device,
            autocast=self.config.autocast,
            train_args=train,
            dev_args=self.config.test,
        )
        self.pairs = task["batches"]
        self.sentences = task["sentences"]
        self.validation = task.get("validation", [])

    def train(self, first: int, last: int, rates: list[float] | None = None) -> dict[str, Any]:
        """Updates as in the loop of its trainer, each at its own rate if given; making the batches is not timed."""
        batches = [make_batch(*pair) for pair in self.pairs[first:last]]
        manager, loss = self.manager, 0.0
        started, processor = time.perf_counter(), time.process_time()
        for number, batch in enumerate(batches):
            if rates is not None:
                manager.optimizer.param_groups[0]["lr"] = rates[number]
            step_loss, _ = manager._train_step(batch)
            manager.clip_grad_fun(parameters=self.model.parameters())
            manager.optimizer.step()
            self.model.zero_grad()
            loss += step_loss
        return {
            "seconds": time.perf_counter() - started,
            "processor": time.process_time() - processor,
            "tokens": float(sum(batch.ntokens for batch in batches)),
            "loss": loss / len(batches),
        }

    def validate(self) -> dict[str, Any]:
        """The summed negative log-likelihood of the validation pairs, end marks included."""
        self.model.eval()
        loss, tokens = 0.0, 0
        with torch.no_grad():
            for pair in self.validation:
                batch = make_batch(*pair)
                found, *_ = self.model(return_type="loss", **vars(batch))
                loss += float(found)
                tokens += int(batch.ntokens)
        return {"nll": loss / tokens, "tokens": tokens}

    def decode(self, groups: list[list[int]], beam: int) -> dict[str, Any]:
        """Search groups of sentences, given by their numbers; the pieces of each come back."""
        self.model.eval()
        batches = [make_batch([self.sentences[number] for number in group]) for group in groups]
        tokens = 0
        outputs = []
        started, processor = time.perf_counter(), time.process_time()
        for batch in batches:
            order = batch.sort_by_src_length()  # where each sentence of the group has gone
            found, _, _ = search(self.model, batch, -1, beam, 1.0, n_best=1, generate_unk=True)
            tokens += int(((found != PAD) & (found != END)).sum())
            outputs.append([found[place] for place in order])
        return {
            "seconds": time.perf_counter() - started,
            "processor": time.process_time() - processor,
            "sentences": float(sum(len(group) for group in groups)),
            "tokens": float(tokens),
            "pieces": [until_end(row) for group in outputs for row in group],
        }


def until_end(row: Any) -> list[int]:
    """The pieces before the end mark."""
    pieces = [int(piece) for piece in row]
    return pieces[: pieces.index(END)] if END in pieces else pieces


def configuration(task: dict[str, Any], folder: str) -> dict[str, Any]:
    """Its configuration for a model of the given sizes."""
    networks = transformer(task) if "transformer" in task else recurrent(task)
    return {
        "name": "peer",
        "model_dir": folder,
        "use_cuda": False,
        "data": {"special_symbols": dict(SYMBOLS)},
        "training": {
            "optimizer": "adam",
            "learning_rate": task["learning_rate"],
            "clip_grad_norm": task["clip"],
            "batch_size": 64,
            "normalization": "tokens",
            "scheduling": "exponential",  # acts at ends of epochs, which never come here
        },
        "testing": {"beam_size": 10, "beam_alpha": 1.0},
        "model": {"initializer": "xavier_uniform", **networks},
    }


def transformer(task: dict[str, Any]) -> dict[str, Any]:
    """Encoder and decoder of one size, with the norm before each part."""
    sizes = task["transformer"]
    network = {
        "type": "transformer",
        "num_layers": sizes["layers"],
        "num_heads": sizes["heads"],
        "hidden_size": sizes["width"],
        "ff_size": sizes["feed_forward"],
        "embeddings": {"embedding_dim": sizes["width"], "scale": True, "dropout": task["dropout"]},
        "dropout": task["dropout"],
        "layer_norm": "pre",
    }
    return {"encoder": network, "decoder": network}


def recurrent(task: dict[str, Any]) -> dict[str, Any]:
    """A bidirectional encoder and a decoder that is fed its contexts."""
    sizes = task["sizes"]
    embeddings = {"embedding_dim": sizes["embedding"], "dropout": task["dropout"]}
    encoder = {
        "type": "recurrent",
        "rnn_type": "lstm",
        "embeddings": embeddings,
        "hidden_size": sizes["memory"] // 2,
        "bidirectional": True,
        "num_layers": 1,
        "dropout": task["dropout"],
    }
    decoder = {
        "type": "recurrent",
        "rnn_type": "lstm",
        "embeddings": embeddings,
        "hidden_size": sizes["decoder"],
        "hidden_dropout": task["dropout"],
        "num_layers": 1,
        "dropout": task["dropout"],
        "input_feeding": True,
        "init_hidden": "bridge",
        "attention": "bahdanau",
    }
    return {"encoder": encoder, "decoder": decoder}


def vocabulary(size: int, symbols: SimpleNamespace) -> Vocabulary:
    """So many pieces; their names do not matter."""
    return Vocabulary([f"piece{number}" for number in range(len(SYMBOLS), size)], symbols)


def make_batch(sources: list[list[int]], targets: list[list[int]] | None = None) -> Batch:
    """Sources with their end marks; targets with theirs, to which the start mark is added."""
    padded = None if targets is None else pad([[START, *target] for target in targets])
    return Batch(
        src=pad(sources),
        src_length=torch.tensor([len(source) for source in sources]),
        src_prompt_mask=None,
        trg=padded,
        trg_prompt_mask=None,
        indices=torch.arange(len(sources)),
        device=torch.device("cpu"),
        pad_index=PAD,
        eos_index=END,
        is_train=targets is not None,
    )


def pad(sequences: list[list[int]]) -> torch.Tensor:
    longest = max(len(sequence) for sequence in sequences)
    return torch.tensor([sequence + [PAD] * (longest - len(sequence)) for sequence in sequences])


def main() -> None:
    """Answer commands until there are none."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever the library prints
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(task, folder)
        for line in sys.stdin:
            command = json.loads(line)
            action = {"train": peer.train, "validate": peer.validate, "decode": peer.decode}[
                command.pop("do")
            ]
            print(json.dumps(action(**command)), file=answers, flush=True)


if __name__ == "__main__":
    main()
