"""What the training scripts of models/ share: the optimizers, the rate over the steps, the curve of the loss.

Matrices learn by Muon, embeddings and norms by AdamW; the rate is constant after a short warm-up and falls linearly to zero over the
last part of the steps.
"""
import torch

# Names of matrices whose rows belong to tokens or distances.
TABLES = ("embed", "shared", "lm_head", "relative_attention_bias")


class Muon(torch.optim.Optimizer):
    """Momentum whose update is replaced by the nearest semi-orthogonal matrix (Jordan et al., 2024), shape by shape."""

    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.0, dtype=torch.float32):
        super().__init__(parameters, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))
        self.dtype = dtype

    def orthogonalise(self, matrices, iterations=5):
        """A Newton-Schulz iteration on [count, rows, columns]."""
        x = (matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)).to(self.dtype)
        is_tall = x.shape[1] > x.shape[2]
        if is_tall:
            x = x.mT
        for _ in range(iterations):
            square = x @ x.mT
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        return (x.mT if is_tall else x).float()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            of_shape = {}
            for parameter in group["params"]:
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                of_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in of_shape.items():
                updates = self.orthogonalise(torch.stack(
                    [p.grad.lerp(self.state[p]["momentum"], group["momentum"]) for p in parameters]))
                for parameter, update in zip(parameters, updates):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(update, alpha=-group["lr"] * max(1, shape[0] / shape[1]) ** 0.5)


def make_optimizers(model, matrix_rate, embedding_rate, decay, dtype=torch.float32):
    """Muon for matrices of two dimensions; AdamW for tables of vectors and for all else, without decay."""
    is_table = lambda name: any(part in name for part in TABLES)
    embeddings = [p for name, p in model.named_parameters() if p.ndim == 2 and is_table(name)]
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and not is_table(name)]
    others = [p for p in model.parameters() if p.ndim != 2]
    return [Muon(matrices, matrix_rate, weight_decay=decay, dtype=dtype),
            torch.optim.AdamW([dict(params=embeddings, lr=embedding_rate, weight_decay=decay),
                               dict(params=others, lr=embedding_rate, weight_decay=0.0)], betas=(0.9, 0.95), eps=1e-10)]


def set_rates(optimizers, factor):
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base"] = group.get("base", group["lr"])
            group["lr"] = group["base"] * factor


def rate_factor(step, steps, cooldown):
    return min(1.0, (step + 1) / 40) * min(1.0, (steps - step) / (cooldown * steps))


def draw_curve(rows, path, low, high, unit):
    """An SVG of (step, training loss, held-out loss or None): steps against nats per unit, with about ten lines across."""
    width, height, left, bottom = 720, 360, 50, 40
    steps_max = max(row[0] for row in rows)
    x = lambda step: left + (width - left - 10) * step / steps_max
    y = lambda loss: 10 + (height - bottom - 10) * (high - min(max(loss, low), high)) / (high - low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    grid = next(g for g in (0.1, 0.2, 0.5, 1.0) if (high - low) / g <= 11)
    for i in range(int((high - low) / grid + 1e-6)):
        loss = low + i * grid
        out.append(f'<path d="M{left} {y(loss):.1f}H{width - 10}" stroke="#ddd"/><text x="20" y="{y(loss) + 4:.1f}">{loss:.1f}</text>')
    for step in range(0, steps_max + 1, max(100, steps_max // 8 // 100 * 100)):
        out.append(f'<text x="{x(step):.1f}" y="{height - 22}" text-anchor="middle">{step}</text>')
    for column, colour, name in ((1, "#8aa", "training"), (2, "#c33", "held out")):
        points = " ".join(f"{x(row[0]):.1f},{y(row[column]):.1f}" for row in rows if row[column] is not None)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{width - 120}" y="{30 + 18 * column}" fill="{colour}">{name}</text>')
    out.append(f'<text x="{width // 2}" y="{height - 6}" text-anchor="middle">steps; loss in nats per {unit}</text></svg>')
    path.write_text("\n".join(out) + "\n")
