//! Tags on machines.

use crate::Client;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::machines::Machine;
use crate::tolerant::wire_type;

const OBJECT: &[&str] = &["Tag"];

wire_type! {
    /// A tag.
    Tag {
        required {
            /// The name, which is also the id.
            name: String,
        }
        /// An XPath expression; machines whose hardware matches get the tag automatically.
        definition: Option<String>,
        /// Free text.
        comment: Option<String>,
        /// Kernel options of machines with the tag.
        kernel_opts: Option<String>,
    }
}

wire_type! {
    /// How many machines a tag change affected. Machines that MAAS does not know are skipped silently, and one that
    /// already had the tag counts as added.
    TagChange {
        /// Machines that got the tag.
        added: Option<i64>,
        /// Machines that lost it.
        removed: Option<i64>,
    }
}

/// Calls about tags; see [`Client::tags`].
#[derive(Debug, Clone, Copy)]
pub struct Tags<'a> {
    client: &'a Client,
}

impl Client {
    /// Tags.
    pub fn tags(&self) -> Tags<'_> {
        Tags { client: self }
    }
}

impl Tags<'_> {
    /// All tags.
    pub async fn list(&self) -> Result<Vec<Tag>> {
        self.client.json(Call::get("tags.list", "tags/", &[])?).await
    }

    /// Creates a tag.
    pub async fn create(&self, name: &str, comment: &str) -> Result<Tag> {
        let call = Call::post("tags.create", "tags/", &[])?;
        self.client.json(call.field("name", name).field("comment", comment)).await
    }

    /// Deletes a tag, even if machines have it.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.client.empty(Call::delete("tags.delete", "tags/{name}/", &[name])?.of(OBJECT)).await
    }

    /// The machines with a tag that are visible to this user.
    pub async fn machines(&self, name: &str) -> Result<Vec<Machine>> {
        self.client.json(Call::get("tags.machines", "tags/{name}/?op=machines", &[name])?.of(OBJECT)).await
    }

    /// Adds the tag to some machines and removes it from others, by system id.
    pub async fn update(&self, name: &str, add: &[&str], remove: &[&str]) -> Result<TagChange> {
        if add.is_empty() && remove.is_empty() {
            return Err(Error::refused("tags.update", "neither machines to add nor to remove"));
        }
        let call = Call::post("tags.update", "tags/{name}/?op=update_nodes", &[name])?.of(OBJECT);
        self.client.json(call.fields("add", add).fields("remove", remove)).await
    }
}
