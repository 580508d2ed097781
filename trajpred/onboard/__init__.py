"""The onboard runtime: run an exported bundle with only NumPy and onnxruntime; see docs/how-to/onboard.md.

Example:
    >>> from trajpred.onboard import Detections, OnboardForecaster, StreamingForecaster
    >>> stream = StreamingForecaster(OnboardForecaster("bundle"), lane_map)
    >>> forecast = stream.update(12.3, Detections(["car 7"], [[4.0, 7.5]]))
    >>> forecast.trajectory, forecast.probability, forecast.not_predicted
"""

from trajpred.onboard.bundle import Bundle
from trajpred.onboard.detections import Detections
from trajpred.onboard.encoder import OnboardEncoder, OnboardTokens
from trajpred.onboard.forecaster import OnboardForecaster
from trajpred.onboard.stream import OnboardForecast, StreamedTokens, StreamingEncoder, StreamingForecaster
