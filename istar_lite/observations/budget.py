"""How much fits where: interval arithmetic over the context window W and the utility model's window U (tokens)."""

from __future__ import annotations

from dataclasses import dataclass

from istar_lite.models import ObservationConfig

UTILITY_SHARE_OBSERVED = 0.6
UTILITY_SHARE_REFLECTED = 0.5


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of one session. `window` None: unknown (work drained where nobody opened the session)."""

    window: int | None
    utility: int | None
    config: ObservationConfig

    @property
    def activation(self) -> float:
        """Tokens from which the log takes the place of messages; a context has to stay below."""
        return float("inf") if self.window is None else self.config.activation_threshold * self.window

    @property
    def call(self) -> int:
        """Tokens of messages that one call of the observer may hold."""
        cap = self.config.buffer_token_cap
        return cap if self.utility is None else max(1, min(cap, int(UTILITY_SHARE_OBSERVED * self.utility)))

    @property
    def reflection(self) -> float:
        """Tokens of log from which it is condensed."""
        limits = [] if self.window is None else [self.config.reflection_threshold * self.window]
        if self.utility is not None:
            limits.append(UTILITY_SHARE_REFLECTED * self.utility)
        return min(limits, default=float("inf"))

    @property
    def background_reflection(self) -> float:
        """Tokens of log from which a reflection is made in the background, to lie ready."""
        return self.config.reflection_buffer_activation * self.reflection

    def interval(self, utilisation: float) -> float:
        """Unobserved tokens from which an observer starts in the background."""
        config = self.config
        room = (config.activation_threshold - utilisation) * (self.window or 0) / config.buffer_target_cycles
        most = [room, float(config.buffer_token_cap)]
        if self.utility is not None:
            most.append(UTILITY_SHARE_OBSERVED * self.utility)
        return max(float(config.buffer_min_tokens), min(most))
