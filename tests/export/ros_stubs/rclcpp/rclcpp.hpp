// As much of rclcpp as the node of tools/onboard_cpp/examples uses. Parameters are those of the command line;
// spin() reads messages from the standard input, a line {"topic", "message"} each, and publish() writes such
// lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "messages.hpp"

#define RCLCPP_WARN(logger, ...) rclcpp::log(logger, __VA_ARGS__)
#define RCLCPP_FATAL(logger, ...) rclcpp::log(logger, __VA_ARGS__)
#define RCLCPP_WARN_THROTTLE(logger, clock, milliseconds, ...) \
  ((void)(clock), (void)(milliseconds), rclcpp::log(logger, __VA_ARGS__))

namespace rclcpp {

struct Logger {
  std::string name;
};

inline Logger get_logger(const std::string& name) { return {name}; }

template <class... Values>
void log(const Logger& logger, const char* format, Values... values) {
  std::fprintf(stderr, "%s: ", logger.name.c_str());
  std::fprintf(stderr, format, values...);
  std::fputc('\n', stderr);
}

struct Clock {
  using SharedPtr = std::shared_ptr<Clock>;
};

class Time {
 public:
  Time(const builtin_interfaces::msg::Time& stamp) : nanoseconds_(stamp.sec * SECOND + stamp.nanosec) {}

  double seconds() const { return static_cast<double>(nanoseconds_) / 1e9; }

 private:
  static constexpr std::int64_t SECOND = 1'000'000'000;

  std::int64_t nanoseconds_;
};

class Duration {
 public:
  explicit Duration(std::chrono::nanoseconds duration) : duration_(duration) {}

  operator builtin_interfaces::msg::Duration() const {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(duration_);
    const auto rest = duration_ - seconds;
    return {static_cast<std::int32_t>(seconds.count()), static_cast<std::uint32_t>(rest.count())};
  }

 private:
  std::chrono::nanoseconds duration_;
};

struct QoS {
  explicit QoS(std::size_t) {}
};

template <class Message>
class Publisher {
 public:
  using SharedPtr = std::shared_ptr<Publisher>;

  explicit Publisher(std::string topic) : topic_(std::move(topic)) {}

  void publish(const Message& message) {
    std::cout << nlohmann::json{{"topic", topic_}, {"message", message}} << '\n';
  }

 private:
  std::string topic_;
};

template <class Message>
struct Subscription {
  using SharedPtr = std::shared_ptr<Subscription>;
};

inline std::map<std::string, std::string>& parameters() {
  static std::map<std::string, std::string> values;
  return values;
}

class Node {
 public:
  explicit Node(const std::string& name) : name_(name) {}
  virtual ~Node() = default;

  template <class Value>
  Value declare_parameter(const std::string& name) {
    const auto found = parameters().find(name);
    const bool is_given = found != parameters().end();
    if (!is_given) throw std::runtime_error("Statically typed parameter '" + name + "' must be initialized.");
    return found->second;
  }

  template <class Message>
  typename Publisher<Message>::SharedPtr create_publisher(const std::string& topic, const QoS&) {
    return std::make_shared<Publisher<Message>>(topic);
  }

  template <class Message, class Callback>
  typename Subscription<Message>::SharedPtr create_subscription(const std::string& topic, const QoS&,
                                                                const Callback& callback) {
    callbacks_[topic] = [callback](const nlohmann::json& message) { callback(message.get<Message>()); };
    return std::make_shared<Subscription<Message>>();
  }

  Logger get_logger() const { return {name_}; }
  Clock::SharedPtr get_clock() const { return std::make_shared<Clock>(); }

  void receive(const nlohmann::json& line) const {
    callbacks_.at(line.at("topic").get<std::string>())(line.at("message"));
  }

 private:
  std::string name_;
  std::map<std::string, std::function<void(const nlohmann::json&)>> callbacks_;
};

// Takes `-p NAME:=VALUE`.
inline void init(int count, char** words) {
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t end = word.find(":=");
    if (end != std::string::npos) parameters()[word.substr(0, end)] = word.substr(end + 2);
  }
}

inline void spin(const std::shared_ptr<Node>& node) {
  std::string line;
  while (std::getline(std::cin, line)) node->receive(nlohmann::json::parse(line));
}

inline void shutdown() {}

}  // namespace rclcpp
