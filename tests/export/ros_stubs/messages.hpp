// The messages that the node of tools/onboard_cpp/examples uses, and these to and from JSON: no ROS 2 needed.
// A field that JSON lacks has its default.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#define STUB NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT

namespace rosidl_runtime_cpp {

// A sequence of at most `Limit` values, as `Pose[<=100]` is.
template <class Value, std::size_t Limit>
class BoundedVector : public std::vector<Value> {
 public:
  void push_back(const Value& value) {
    if (this->size() == Limit) throw std::length_error("a bounded sequence is full");
    std::vector<Value>::push_back(value);
  }
};

}  // namespace rosidl_runtime_cpp

namespace builtin_interfaces::msg {

struct Time {
  std::int32_t sec = 0;
  std::uint32_t nanosec = 0;
};
STUB(Time, sec, nanosec)

struct Duration {
  std::int32_t sec = 0;
  std::uint32_t nanosec = 0;
};
STUB(Duration, sec, nanosec)

}  // namespace builtin_interfaces::msg

namespace std_msgs::msg {

struct Header {
  builtin_interfaces::msg::Time stamp;
  std::string frame_id;
};
STUB(Header, stamp, frame_id)

}  // namespace std_msgs::msg

namespace unique_identifier_msgs::msg {

struct UUID {
  std::array<std::uint8_t, 16> uuid{};
};
STUB(UUID, uuid)

}  // namespace unique_identifier_msgs::msg

namespace geometry_msgs::msg {

struct Point {
  double x = 0.0, y = 0.0, z = 0.0;
};
STUB(Point, x, y, z)

struct Vector3 {
  double x = 0.0, y = 0.0, z = 0.0;
};
STUB(Vector3, x, y, z)

struct Quaternion {
  double x = 0.0, y = 0.0, z = 0.0, w = 1.0;
};
STUB(Quaternion, x, y, z, w)

struct Pose {
  Point position;
  Quaternion orientation;
};
STUB(Pose, position, orientation)

struct PoseWithCovariance {
  Pose pose;
};
STUB(PoseWithCovariance, pose)

struct Twist {
  Vector3 linear, angular;
};
STUB(Twist, linear, angular)

struct TwistWithCovariance {
  Twist twist;
};
STUB(TwistWithCovariance, twist)

struct AccelWithCovariance {
  double unused = 0.0;
};
STUB(AccelWithCovariance, unused)

}  // namespace geometry_msgs::msg

namespace nav_msgs::msg {

struct Odometry {
  std_msgs::msg::Header header;
  geometry_msgs::msg::PoseWithCovariance pose;
  geometry_msgs::msg::TwistWithCovariance twist;
};
STUB(Odometry, header, pose, twist)

}  // namespace nav_msgs::msg

namespace autoware_perception_msgs::msg {

struct ObjectClassification {
  std::uint8_t label = 0;
  float probability = 0.0f;
};
STUB(ObjectClassification, label, probability)

struct Shape {
  geometry_msgs::msg::Vector3 dimensions;
};
STUB(Shape, dimensions)

struct TrackedObjectKinematics {
  static constexpr std::uint8_t UNAVAILABLE = 0;
  static constexpr std::uint8_t SIGN_UNKNOWN = 1;
  static constexpr std::uint8_t AVAILABLE = 2;
  geometry_msgs::msg::PoseWithCovariance pose_with_covariance;
  geometry_msgs::msg::TwistWithCovariance twist_with_covariance;
  geometry_msgs::msg::AccelWithCovariance acceleration_with_covariance;
  std::uint8_t orientation_availability = UNAVAILABLE;
};
STUB(TrackedObjectKinematics, pose_with_covariance, twist_with_covariance, acceleration_with_covariance,
     orientation_availability)

struct TrackedObject {
  unique_identifier_msgs::msg::UUID object_id;
  float existence_probability = 0.0f;
  std::vector<ObjectClassification> classification;
  TrackedObjectKinematics kinematics;
  Shape shape;
};
STUB(TrackedObject, object_id, existence_probability, classification, kinematics, shape)

struct TrackedObjects {
  std_msgs::msg::Header header;
  std::vector<TrackedObject> objects;
};
STUB(TrackedObjects, header, objects)

struct PredictedPath {
  rosidl_runtime_cpp::BoundedVector<geometry_msgs::msg::Pose, 100> path;
  builtin_interfaces::msg::Duration time_step;
  float confidence = 0.0f;
};
STUB(PredictedPath, path, time_step, confidence)

struct PredictedObjectKinematics {
  geometry_msgs::msg::PoseWithCovariance initial_pose_with_covariance;
  geometry_msgs::msg::TwistWithCovariance initial_twist_with_covariance;
  geometry_msgs::msg::AccelWithCovariance initial_acceleration_with_covariance;
  std::vector<PredictedPath> predicted_paths;
};
STUB(PredictedObjectKinematics, initial_pose_with_covariance, initial_twist_with_covariance,
     initial_acceleration_with_covariance, predicted_paths)

struct PredictedObject {
  unique_identifier_msgs::msg::UUID object_id;
  float existence_probability = 0.0f;
  std::vector<ObjectClassification> classification;
  PredictedObjectKinematics kinematics;
  Shape shape;
};
STUB(PredictedObject, object_id, existence_probability, classification, kinematics, shape)

struct PredictedObjects {
  std_msgs::msg::Header header;
  std::vector<PredictedObject> objects;
};
STUB(PredictedObjects, header, objects)

}  // namespace autoware_perception_msgs::msg
