//! Resource pools.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;

const OBJECT: &[&str] = &["ResourcePool"];

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

    /// One pool, by name or id. (MAAS uses the singular here, and only here.)
    pub async fn read(&self, name_or_id: &str) -> Result<Pool> {
        let call = Call::get("pools.read", "resourcepool/{name_or_id}/", &[name_or_id])?;
        self.client.json(call.of(OBJECT)).await
    }

    /// Creates a pool.
    pub async fn create(&self, name: &str, description: &str) -> Result<Pool> {
        let call = Call::post("pools.create", "resourcepools/", &[])?;
        self.client.json(call.field("name", name).field("description", description)).await
    }

    /// Deletes a pool.
    pub async fn delete(&self, name_or_id: &str) -> Result<()> {
        let call = Call::delete("pools.delete", "resourcepool/{name_or_id}/", &[name_or_id])?;
        self.client.empty(call.of(OBJECT)).await
    }
}
