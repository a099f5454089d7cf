//! The manifests, from the same files that users get.

/// The agent with all its objects. `${REGISTRY}` and `${TAG}` still have to be replaced.
pub const DAEMON_SET: &str = include_str!("../../../lxd-initializer/lxd-initializer-daemonset.yaml");

/// The policy that limits the agent to its own Node, for API servers that serve ValidatingAdmissionPolicy.
pub const NODE_PATCH_POLICY: &str = include_str!("../../../lxd-initializer/node-patch-policy.yaml");
