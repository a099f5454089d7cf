//! The manifests, from the one place where users find them too.

/// The agent with all it needs. `${REGISTRY}` and `${TAG}` are still to be replaced.
pub const DAEMON_SET: &str = include_str!("../../../lxd-initializer/lxd-initializer-daemonset.yaml");

/// What limits the agent to its own Node, for API servers that serve ValidatingAdmissionPolicy.
pub const NODE_PATCH_POLICY: &str = include_str!("../../../lxd-initializer/node-patch-policy.yaml");
