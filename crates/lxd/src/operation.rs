//! Background operations.

use serde::Deserialize;

use crate::tolerant;

/// A background operation. Its metadata is omitted deliberately: a token operation contains its secret there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Operation {
    /// Its id.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub id: String,
    /// `task`, `websocket` or `token`.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub class: String,
    /// LXD's description.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub description: String,
    /// LXD's status code.
    #[serde(default, deserialize_with = "tolerant::or_default")]
    pub status_code: u16,
    /// Why it failed; empty otherwise.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub err: String,
}

/// The status of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationStatus {
    /// Not ended yet.
    Running,
    /// Completed successfully.
    Succeeded,
    /// Failed.
    Failed,
    /// Cancelled.
    Cancelled,
    /// A code that this client does not know.
    Unknown(u16),
}

impl Operation {
    /// Its status.
    pub fn status(&self) -> OperationStatus {
        match self.status_code {
            // created, started, stopped, running, cancelling, pending
            100..=106 => OperationStatus::Running,
            200 => OperationStatus::Succeeded,
            400 => OperationStatus::Failed,
            401 => OperationStatus::Cancelled,
            other => OperationStatus::Unknown(other),
        }
    }
}
