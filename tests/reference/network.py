"""The networks as published: nothing folded, every tensor materialised, loops where clearer.

Parameters are passed under the names of the formulas; matrices are (out, in).
"""

from __future__ import annotations

import torch
from torch import Tensor


def attention_logits(projected: Tensor, class_queries: Tensor, weight: Tensor) -> Tensor:
    """Projected (B, L, A), queries (C, A), weight (A,) -> (B, C, L)."""
    product = projected[:, None, :, :] * class_queries[None, :, None, :]
    return (torch.tanh(product) * weight).sum(-1)


def decoupling(
    feature_map: Tensor,
    embeddings: Tensor,
    U: Tensor,
    V: Tensor,
    W3: Tensor,
    b3: Tensor,
    w4: Tensor,
    b4: Tensor,
) -> Tensor:
    """Feature map (B, D, h, w), embeddings (C, E) -> class features (B, C, D), W3 and w4 applied in turn."""
    rows = []
    for image in feature_map:
        locations = image.reshape(image.shape[0], -1).T
        features = []
        for x in embeddings:
            logits = []
            for f in locations:
                q = torch.tanh((U @ f) * (V @ x))
                t = W3 @ q + b3
                logits.append((w4 @ t + b4).squeeze())
            alpha = torch.softmax(torch.stack(logits), dim=0)
            features.append(sum(a * f for a, f in zip(alpha, locations, strict=True)))
        rows.append(torch.stack(features))
    return torch.stack(rows)


def gated_graph(states: Tensor, graph: Tensor, gates: dict[str, Tensor], steps: int) -> Tensor:
    """States (B, C, D) after ``steps`` steps; ``gates``: W*, U* and biases bW*, bU* for * in z, r, h."""
    batch = []
    for image in states:
        h = list(image)
        for _ in range(steps):
            new = []
            for i in range(len(h)):
                incoming = sum(graph[i, j] * h[j] for j in range(len(h)))
                outgoing = sum(graph[j, i] * h[j] for j in range(len(h)))
                m = torch.cat([incoming, outgoing])
                z = torch.sigmoid(gates["Wz"] @ m + gates["bWz"] + gates["Uz"] @ h[i] + gates["bUz"])
                r = torch.sigmoid(gates["Wr"] @ m + gates["bWr"] + gates["Ur"] @ h[i] + gates["bUr"])
                candidate = torch.tanh(
                    gates["Wh"] @ m + gates["bWh"] + gates["Uh"] @ (r * h[i]) + gates["bUh"]
                )
                new.append((1 - z) * h[i] + z * candidate)
            h = new
        batch.append(torch.stack(h))
    return torch.stack(batch)


def class_logits(states: Tensor, features: Tensor, Wo: Tensor, bo: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """States and features (B, C, D) -> logits (B, C)."""
    return torch.stack(
        [
            torch.stack([w[c] @ torch.tanh(Wo @ torch.cat([h[c], f[c]]) + bo) + b[c] for c in range(len(w))])
            for h, f in zip(states, features, strict=True)
        ]
    )


def pair_mlp(
    features: Tensor,
    W1: Tensor,
    b1: Tensor,
    W2: Tensor,
    b2: Tensor,
    W3: Tensor,
    b3: Tensor,
    u: Tensor,
    c: Tensor,
) -> Tensor:
    """Features (B, C, D) -> pair logits (B, Q): every pair's concatenation through all the layers."""
    g = features @ W1.T + b1
    columns = []
    pair = 0
    for i in range(features.shape[1]):
        for j in range(i + 1, features.shape[1]):
            hidden = torch.relu(torch.cat([g[:, i], g[:, j]], dim=1) @ W2.T + b2)
            v = hidden @ W3.T + b3
            columns.append(v @ u[pair] + c[pair])
            pair += 1
    return torch.stack(columns, dim=1) if columns else features.new_zeros(features.shape[0], 0)


def pair_scores(left: Tensor, right: Tensor, vectors: Tensor) -> Tensor:
    """Left, right (B, C, D), vectors (Q, D) -> (B, Q)."""
    classes = left.shape[1]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    columns = [(torch.relu(left[:, i] + right[:, j]) * vectors[k]).sum(-1) for k, (i, j) in enumerate(pairs)]
    return torch.stack(columns, dim=1) if columns else left.new_zeros(left.shape[0], 0)


def factorised_pairs(
    features: Tensor, W1: Tensor, b1: Tensor, Wj: Tensor, bj: Tensor, xy: Tensor, c: Tensor
) -> Tensor:
    """Pair logits (B, Q) of the factorised head, pair by pair; Wj, bj and xy hold first left, then right."""
    batch, classes, _ = features.shape
    hidden = xy.shape[1] // 2
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    rows = []
    for n in range(batch):
        reduced = [W1 @ features[n, k] + b1 for k in range(classes)]
        left = [torch.relu(Wj[:hidden] @ g + bj[:hidden]) * xy[k, :hidden] for k, g in enumerate(reduced)]
        right = [torch.relu(Wj[hidden:] @ g + bj[hidden:]) * xy[k, hidden:] for k, g in enumerate(reduced)]
        rows.append([(left[i] * right[j]).sum() + c[q] for q, (i, j) in enumerate(pairs)])
    return torch.stack([torch.stack(row) if row else features.new_zeros(0) for row in rows])


def cooccurrence_graph(labels: list[list[int]], classes: int) -> list[list[float]]:
    """Conditional frequency of known positives, by counting."""
    graph = [[0.0] * classes for _ in range(classes)]
    for i in range(classes):
        with_i = [row for row in labels if row[i] == 1]
        for j in range(classes):
            if with_i:
                graph[i][j] = sum(row[j] == 1 for row in with_i) / len(with_i)
        graph[i][i] = 1.0
    return graph


def class_features(feature_map: Tensor, embeddings: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """A map (B, D, h, w) through the decoupling whose parameters are in the state of a network."""
    return decoupling(
        feature_map,
        embeddings,
        U=weights["decoupling.feature_projection.weight"],
        V=weights["decoupling.class_projection.weight"],
        W3=weights["decoupling.hidden.weight"],
        b3=weights["decoupling.hidden.bias"],
        w4=weights["decoupling.output.weight"],
        b4=weights["decoupling.output.bias"],
    )


def gates_of(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The matrices of :func:`gated_graph` from the state of a network; a tied reset gate takes Uz for Ur."""
    gates = {}
    for letter, name in (("z", "update"), ("r", "reset"), ("h", "candidate")):
        for matrix, source in (("W", "message"), ("U", "state")):
            layer = f"{prefix}{name}_{source}"
            if layer + ".weight" not in weights:
                layer = f"{prefix}update_state"
            gates[matrix + letter], gates["b" + matrix + letter] = (
                weights[layer + ".weight"],
                weights[layer + ".bias"],
            )
    return gates


def head_network(
    feature_map: Tensor, embeddings: Tensor, graph: Tensor, weights: dict[str, Tensor], steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A reduced feature map (B, D, h, w) through the whole head: logits, class features and pair logits.

    ``weights`` are the state of a ``SemanticTransferNetwork``; this is the one place that knows its names.
    """
    logits, features = ssgrl(feature_map, embeddings, graph, weights, steps)
    pairs = "pair_head."
    pair_logits = pair_mlp(
        features,
        W1=weights[pairs + "reduce.weight"],
        b1=weights[pairs + "reduce.bias"],
        W2=weights[pairs + "join.weight"],
        b2=weights[pairs + "join.bias"],
        W3=weights[pairs + "hidden.weight"],
        b3=weights[pairs + "hidden.bias"],
        u=weights[pairs + "classifier.weight"],
        c=weights[pairs + "classifier.bias"],
    )
    return logits, features, pair_logits


def ssgrl(
    feature_map: Tensor, embeddings: Tensor, graph: Tensor, weights: dict[str, Tensor], steps: int
) -> tuple[Tensor, Tensor]:
    """A feature map (B, D, h, w) through the head of SSGRL: logits and class features."""
    features = class_features(feature_map, embeddings, weights)
    logits = class_logits(
        gated_graph(features, graph, gates_of(weights, "propagation."), steps),
        features,
        Wo=weights["class_head.output.weight"],
        bo=weights["class_head.output.bias"],
        w=weights["class_head.classifier.weight"],
        b=weights["class_head.classifier.bias"],
    )
    return logits, features


def propagated_weights(
    W0: Tensor, graph: Tensor, gates: dict[str, Tensor], M: Tensor, b: Tensor, steps: int
) -> Tensor:
    """Class weights W* (C, D): the classes' own weights W0 and their propagated form, joined."""
    H = gated_graph(W0[None], graph, gates, steps)[0]
    return torch.stack([M @ torch.cat([H[c], W0[c]]) + b for c in range(len(W0))])


def kggr(
    feature_map: Tensor, embeddings: Tensor, graph: Tensor, weights: dict[str, Tensor], steps: int
) -> tuple[Tensor, Tensor]:
    """A reduced feature map (B, D, h, w) through the head of KGGR: logits and class features."""
    features = class_features(feature_map, embeddings, weights)
    head = "weight_head."
    W = propagated_weights(
        weights[head + "classifier.weight"],
        graph,
        gates_of(weights, head + "propagation."),
        M=weights[head + "output.weight"],
        b=weights[head + "output.bias"],
        steps=steps,
    )
    logits = class_logits(
        gated_graph(features, graph, gates_of(weights, "propagation."), steps),
        features,
        Wo=weights["output.weight"],
        bo=weights["output.bias"],
        w=W,
        b=weights[head + "classifier.bias"],
    )
    return logits, features


def convolution_graph(labels: list[list[int]], classes: int, t: float, p: float) -> list[list[float]]:
    """The normalised graph of ML-GCN's published code, entry by entry."""
    linked = [[0.0] * classes for _ in range(classes)]
    for i in range(classes):
        with_i = [row for row in labels if row[i] == 1]
        for j in range(classes):
            if i != j and with_i and sum(row[j] == 1 for row in with_i) / len(with_i) >= t:
                linked[i][j] = 1.0
    graph = [[0.0] * classes for _ in range(classes)]
    for i in range(classes):
        for j in range(classes):
            column = sum(linked[k][j] for k in range(classes))
            graph[i][j] = p * linked[i][j] / (column + 1e-6) + (i == j)
    scale = [sum(row) ** -0.5 for row in graph]
    return [[scale[i] * graph[j][i] * scale[j] for j in range(classes)] for i in range(classes)]


def ml_gcn(
    feature_map: Tensor,
    embeddings: Tensor,
    graph: Tensor,
    W1: Tensor,
    W2: Tensor,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """A feature map (B, D, h, w) through ML-GCN: logits (B, C) and pooled images (B, D); W1, W2 are (in, out)."""
    classes = len(embeddings)

    def neighbours(nodes: list[Tensor]) -> list[Tensor]:
        return [sum(graph[i, j] * nodes[j] for j in range(classes)) for i in range(classes)]

    hidden = [x @ W1 for x in neighbours(list(embeddings))]
    hidden = [torch.where(h > 0, h, 0.2 * h) for h in hidden]
    weights = [h @ W2 for h in neighbours(hidden)]
    pooled = torch.stack([torch.stack([channel.max() for channel in image]) for image in feature_map])
    logits = torch.stack([torch.stack([x @ w for w in weights]) for x in pooled])
    return (logits if bias is None else logits + bias), pooled
