//! Resource pools.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;

wire_type! {
    /// A resource pool.
    Pool {
        required {
            /// The name.
            name: String,
        }
        /// The id, which `compose` takes instead of the name. The default pool is 0.
        id: Option<i64>,
        /// Free text.
        description: Option<String>,
    }
}

/// Calls about resource pools; see [`Client::pools`].
#[derive(Debug, Clone, Copy)]
pub struct Pools<'a> {
    client: &'a Client,
}

impl Client {
    /// Resource pools.
    pub fn pools(&self) -> Pools<'_> {
        Pools { client: self }
    }
}

impl Pools<'_> {
    /// All pools.
    pub async fn list(&self) -> Result<Vec<Pool>> {
        self.client.json(Call::get("pools.list", "resourcepools/", &[])?).await
    }
}
