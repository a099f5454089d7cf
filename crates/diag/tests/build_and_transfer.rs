//! The script that builds the static programs and copies them to a node.
