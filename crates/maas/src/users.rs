//! Users.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;

wire_type! {
    /// A user of MAAS.
    User {
        required {
            /// The login name; it identifies the owner of machines.
            username: String,
        }
        /// The mail address.
        email: Option<String>,
        /// Whether the user is an administrator.
        is_superuser: Option<bool>,
        /// Whether the user account is local to MAAS.
        is_local: Option<bool>,
    }
}

impl Client {
    /// The user that this client's key belongs to.
    pub async fn whoami(&self) -> Result<User> {
        self.json(Call::get("users.whoami", "users/?op=whoami", &[])?).await
    }
}
