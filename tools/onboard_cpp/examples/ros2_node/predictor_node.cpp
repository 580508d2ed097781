// A ROS 2 node for Autoware: tracked objects and the ego's odometry in, predicted objects out.
//
// Parameters: `bundle`, a folder written by `trajpred export`, and `map`, a file written by `trajpred info
// MAP --save lanes.json`.
#include <trajpred_onboard/onnx.hpp>
#include <trajpred_onboard/trajpred_onboard.hpp>

#include <algorithm>
#include <array>
#include <autoware_perception_msgs/msg/predicted_objects.hpp>
#include <autoware_perception_msgs/msg/tracked_objects.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <nav_msgs/msg/odometry.hpp>
#include <optional>
#include <rclcpp/rclcpp.hpp>
#include <string>
#include <vector>

namespace {

namespace onboard = trajpred::onboard;
using autoware_perception_msgs::msg::ObjectClassification;
using autoware_perception_msgs::msg::PredictedObject;
using autoware_perception_msgs::msg::PredictedObjects;
using autoware_perception_msgs::msg::PredictedPath;
using autoware_perception_msgs::msg::TrackedObject;
using autoware_perception_msgs::msg::TrackedObjectKinematics;
using autoware_perception_msgs::msg::TrackedObjects;
using geometry_msgs::msg::Pose;
using geometry_msgs::msg::Quaternion;
using geometry_msgs::msg::Vector3;
using nav_msgs::msg::Odometry;

// By the labels of ObjectClassification, from UNKNOWN and CAR to UNDER_DRIVABLE.
constexpr std::array<const char*, 12> TYPES = {
    "unknown", "vehicle",    "vehicle", "bus",    "vehicle", "motorcyclist",
    "cyclist", "pedestrian", "unknown", "static", "static",  "static",
};
// The frame of the map, in which objects and odometry must be.
constexpr const char* FRAME = "map";
// Less probable modes are left out, except an object's most probable one: Autoware ignores such paths.
constexpr double MIN_PROBABILITY = 0.1;
// Autoware's limit of poses in a path.
constexpr std::size_t MAX_POSES = 100;
// Longest time between the odometry and the objects (s).
constexpr double MAX_EGO_GAP_S = 0.5;
constexpr int THREADS = 2;
// Milliseconds between log lines about a persistent problem.
constexpr int LOG_MS = 5000;
constexpr double UNKNOWN = std::numeric_limits<double>::quiet_NaN();

// Returns the 32 hexadecimal digits of an id.
std::string to_hex(const unique_identifier_msgs::msg::UUID& id) {
  constexpr const char* DIGITS = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : id.uuid) {
    text += DIGITS[byte / 16];
    text += DIGITS[byte % 16];
  }
  return text;
}

// Returns the type of the most probable label; a probability that is not a number is the lowest.
std::string to_type(const std::vector<ObjectClassification>& classes) {
  std::size_t label = 0;
  double highest = -std::numeric_limits<double>::infinity();
  for (const ObjectClassification& candidate : classes) {
    const double probability = std::isnan(candidate.probability) ? -1.0 : candidate.probability;
    if (probability <= highest) continue;
    label = candidate.label;
    highest = probability;
  }
  return label < TYPES.size() ? TYPES[label] : "unknown";
}

// Returns the heading of a quaternion of any length, unknown if all of it is 0 or its x axis is vertical.
double to_heading(const Quaternion& q) {
  const double ahead = q.w * q.w + q.x * q.x - q.y * q.y - q.z * q.z;
  const double left = 2.0 * (q.w * q.z + q.x * q.y);
  const double square = q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w;
  const bool is_known = std::hypot(ahead, left) > 1e-6 * square;
  return is_known ? std::atan2(left, ahead) : UNKNOWN;
}

Quaternion to_quaternion(double heading) {
  Quaternion q;
  q.z = std::sin(heading / 2.0);
  q.w = std::cos(heading / 2.0);
  return q;
}

// Rotates a velocity from the frame of its object to that of the map.
onboard::Point to_velocity(const Vector3& linear, double heading) {
  return onboard::Rotation(heading)({linear.x, linear.y});
}

// Whether a detection there can be used.
bool is_usable(const Pose& pose) {
  const auto& p = pose.position;
  return std::abs(p.x) <= onboard::MAX_COORDINATE && std::abs(p.y) <= onboard::MAX_COORDINATE;
}

bool is_finite(const Pose& pose) {
  const auto& p = pose.position;
  const auto& q = pose.orientation;
  return std::isfinite(p.x + p.y + p.z + q.x + q.y + q.z + q.w);
}

// The road users of one moment.
class Detected {
 public:
  Detected() {
    values_.heading.emplace();
    values_.velocity.emplace();
    values_.object_type.emplace();
  }

  void add(const TrackedObject& object) {
    const auto& motion = object.kinematics;
    const Pose& pose = motion.pose_with_covariance.pose;
    const Vector3& linear = motion.twist_with_covariance.twist.linear;
    const bool has_heading = motion.orientation_availability != TrackedObjectKinematics::UNAVAILABLE;
    const bool has_sign = motion.orientation_availability != TrackedObjectKinematics::SIGN_UNKNOWN;
    const double yaw = has_heading ? to_heading(pose.orientation) : UNKNOWN;
    const bool is_reversed = !has_sign && linear.x < 0.0;
    const double heading = is_reversed ? yaw + onboard::PI : yaw;
    const onboard::Point position{pose.position.x, pose.position.y};
    add(to_hex(object.object_id), to_type(object.classification), position, heading,
        to_velocity(linear, yaw));
  }

  // Adds the ego at its position at `time_s`: localisation and tracker have different times.
  void add_ego(const Odometry& odometry, double time_s) {
    const Pose& pose = odometry.pose.pose;
    const auto& twist = odometry.twist.twist;
    const double gap_s = time_s - rclcpp::Time(odometry.header.stamp).seconds();
    const double yaw = to_heading(pose.orientation);
    const onboard::Point velocity = to_velocity(twist.linear, yaw);
    onboard::Point position{pose.position.x, pose.position.y};
    if (onboard::is_finite(velocity)) position = position + gap_s * velocity;
    add(onboard::EGO_ID, "vehicle", position, yaw + gap_s * twist.angular.z, velocity);
  }

  const onboard::Detections& values() const { return values_; }

 private:
  void add(const std::string& id, const std::string& type, onboard::Point position, double heading,
           onboard::Point velocity) {
    values_.track_id.push_back(id);
    values_.object_type->push_back(type);
    values_.position.push_back(position);
    values_.heading->push_back(heading);
    values_.velocity->push_back(velocity);
  }

  onboard::Detections values_;
};

// Returns the modes of a track of at least MIN_PROBABILITY, or the most probable one, in that order.
std::vector<std::size_t> likely_modes(const onboard::Forecast& forecast, std::size_t track) {
  const auto probability = [&forecast, track](std::size_t mode) {
    return forecast.probability[track * forecast.modes + mode];
  };
  std::vector<std::size_t> modes;
  for (std::size_t mode = 0; mode < forecast.modes; ++mode) modes.push_back(mode);
  std::stable_sort(modes.begin(), modes.end(),
                   [&probability](std::size_t a, std::size_t b) { return probability(a) > probability(b); });
  while (modes.size() > 1 && probability(modes.back()) < MIN_PROBABILITY) modes.pop_back();
  return modes;
}

// Converts a mode to a path from the pose `start`, with every step or, if these are too many, every n-th
// step.
PredictedPath to_path(const Pose& start, const onboard::Forecast& forecast, std::size_t track,
                      std::size_t mode, double step_s) {
  const std::size_t stride = (forecast.horizon + MAX_POSES - 2) / (MAX_POSES - 1);
  PredictedPath path;
  path.path.push_back(start);
  for (std::size_t step = stride - 1; step < forecast.horizon; step += stride) {
    const std::size_t i = forecast.index(track, mode, step);
    Pose pose;
    pose.position.x = forecast.trajectory[i].x;
    pose.position.y = forecast.trajectory[i].y;
    pose.position.z = start.position.z;
    pose.orientation = to_quaternion(forecast.heading[i]);
    path.path.push_back(pose);
  }
  const double time_step_s = static_cast<double>(stride) * step_s;
  path.time_step = rclcpp::Duration(std::chrono::nanoseconds(std::llround(time_step_s * 1e9)));
  path.confidence = static_cast<float>(forecast.probability[track * forecast.modes + mode]);
  return path;
}

// Adds the futures to the tracked objects. Objects without futures are left out; of several with one id, only
// the predicted one is kept, the first usable.
PredictedObjects to_message(const TrackedObjects& tracked, const onboard::Forecast& forecast, double step_s) {
  std::map<std::string, std::size_t> row_of;
  for (std::size_t row = 0; row < forecast.size(); ++row) row_of[forecast.track_id[row]] = row;
  PredictedObjects message;
  message.header = tracked.header;
  for (const TrackedObject& object : tracked.objects) {
    const auto found = row_of.find(to_hex(object.object_id));
    const auto& motion = object.kinematics;
    const Pose& pose = motion.pose_with_covariance.pose;
    if (found == row_of.end() || !is_usable(pose)) continue;
    const std::size_t track = found->second;
    row_of.erase(found);
    if (!is_finite(pose)) continue;
    PredictedObject predicted;
    predicted.object_id = object.object_id;
    predicted.existence_probability = object.existence_probability;
    predicted.classification = object.classification;
    predicted.shape = object.shape;
    predicted.kinematics.initial_pose_with_covariance = motion.pose_with_covariance;
    predicted.kinematics.initial_twist_with_covariance = motion.twist_with_covariance;
    predicted.kinematics.initial_acceleration_with_covariance = motion.acceleration_with_covariance;
    for (const std::size_t mode : likely_modes(forecast, track)) {
      predicted.kinematics.predicted_paths.push_back(to_path(pose, forecast, track, mode, step_s));
    }
    message.objects.push_back(predicted);
  }
  return message;
}

// All callbacks run in the thread of spin(): a StreamingForecaster is for one thread.
class PredictorNode : public rclcpp::Node {
 public:
  PredictorNode()
      : Node("trajpred"),
        stream_(onboard::open_forecaster(declare_parameter<std::string>("bundle"), THREADS), load_map(),
                onboard::EGO_ID, onboard::lane_following) {
    predicted_ = create_publisher<PredictedObjects>("/perception/object_recognition/objects", rclcpp::QoS(1));
    odometry_ = create_subscription<Odometry>("/localization/kinematic_state", rclcpp::QoS(1),
                                              [this](const Odometry& message) { ego_ = message; });
    tracked_ =
        create_subscription<TrackedObjects>("/perception/object_recognition/tracking/objects", rclcpp::QoS(1),
                                            [this](const TrackedObjects& message) { predict(message); });
  }

 private:
  onboard::LaneMap load_map() {
    const onboard::Report report = [this](const std::string& left_out) { warn(left_out); };
    return onboard::LaneMap::load(declare_parameter<std::string>("map"), report);
  }

  void predict(const TrackedObjects& message) {
    if (message.header.frame_id != FRAME) {
      RCLCPP_WARN_THROTTLE(get_logger(), *get_clock(), LOG_MS, "objects are in the frame %s, not in %s",
                           message.header.frame_id.c_str(), FRAME);
      return;
    }
    const double time_s = rclcpp::Time(message.header.stamp).seconds();
    Detected detected;
    for (const TrackedObject& object : message.objects) detected.add(object);
    if (has_ego(time_s)) {
      detected.add_ego(*ego_, time_s);
    } else {
      RCLCPP_WARN_THROTTLE(get_logger(), *get_clock(), LOG_MS, "predicted without the ego: no odometry in %s",
                           FRAME);
    }
    const onboard::OnboardForecast forecast = stream_.update(time_s, detected.values());
    for (const std::string& warning : forecast.warnings) warn(warning);
    if (forecast.timestamp_s != time_s) return;  // the message was late: these are earlier futures
    predicted_->publish(to_message(message, forecast, stream_.runtime().bundle().step_s()));
  }

  bool has_ego(double time_s) const {
    if (!ego_ || ego_->header.frame_id != FRAME) return false;
    return std::abs(time_s - rclcpp::Time(ego_->header.stamp).seconds()) <= MAX_EGO_GAP_S;
  }

  void warn(const std::string& text) const { RCLCPP_WARN(get_logger(), "%s", text.c_str()); }

  onboard::StreamingForecaster stream_;
  std::optional<Odometry> ego_;
  rclcpp::Publisher<PredictedObjects>::SharedPtr predicted_;
  rclcpp::Subscription<Odometry>::SharedPtr odometry_;
  rclcpp::Subscription<TrackedObjects>::SharedPtr tracked_;
};

}  // namespace

int main(int count, char** words) {
  rclcpp::init(count, words);
  int code = 0;
  try {
    rclcpp::spin(std::make_shared<PredictorNode>());
  } catch (const std::exception& error) {  // a parameter, the bundle or the map
    RCLCPP_FATAL(rclcpp::get_logger("trajpred"), "%s", error.what());
    code = 1;
  }
  rclcpp::shutdown();
  return code;
}
