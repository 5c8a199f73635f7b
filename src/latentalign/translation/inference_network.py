"""q(z | x, y): where each target word came from, told with the whole target at hand."""

from torch import Tensor, nn

from latentalign.alignment.scores import General
from latentalign.translation.config import InferenceNetworkConfig
from latentalign.translation.dropout import Dropout
from latentalign.translation.recurrent import BidirectionalLstm


class InferenceNetwork(nn.Module):
    """Bi-LSTMs over source and target words and a bilinear score h_jᵀ U x_i.

    It reads the word vectors of the generative model but does not train them, and it shares nothing else.
    """

    def __init__(self, embedding_size: int, config: InferenceNetworkConfig, *, dropout: float) -> None:
        super().__init__()
        drop = dropout if config.dropout is None else config.dropout
        size = config.memory_size
        self.source = BidirectionalLstm(embedding_size, size, layers=config.layers, dropout=drop)
        self.target = BidirectionalLstm(embedding_size, size, layers=config.layers, dropout=drop)
        self.score = General(size, size)
        self.dropout = Dropout(drop)

    def forward(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor, *, padded: bool = True
    ) -> Tensor:
        """Scores [B,T,S] from word vectors [B,S,E] and [B,T,E]; step j sees the word it predicts, y_j."""
        memory = self.dropout(self.source(self.dropout(source), source_mask, padded=padded))
        queries = self.dropout(self.target(self.dropout(target), target_mask, padded=padded))
        scores: Tensor = self.score(queries, memory)
        return scores
