//! Settings of the server.

use serde_json::Value;

use crate::Client;
use crate::call::Call;
use crate::error::Result;

impl Client {
    /// A setting of MAAS, for example `default_distro_series`. Some need an administrator.
    pub async fn get_config(&self, name: &str) -> Result<Value> {
        self.json(Call::get("maas.get_config", "maas/?op=get_config", &[])?.query("name", name)).await
    }
}
