//! Images.

use std::collections::BTreeMap;

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::tolerant::wire_type;

wire_type! {
    /// An image.
    BootResource {
        required {
            /// The number.
            id: i64,
        }
        /// `Synced` from a mirror, `Uploaded` by somebody, or `Generated`.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// `ubuntu/jammy`; for an uploaded one just its name.
        name: Option<String>,
        /// `amd64/generic`.
        architecture: Option<String>,
        /// For people.
        title: Option<String>,
        /// Comma separated.
        subarches: Option<String>,
        /// When a machine last got it (from 3.4).
        last_deployed: Option<String>,
        /// Its versions, by name; only in [`BootResources::read`].
        sets: BTreeMap<String, BootResourceSet>,
    }
}

wire_type! {
    /// A version of an image.
    BootResourceSet {
        /// The version's name.
        version: Option<String>,
        /// In words.
        label: Option<String>,
        /// Bytes.
        size: Option<i64>,
        /// Whether all of it is in the region. A rack may still be without it.
        complete: Option<bool>,
        /// Percent that are there, while it is not complete.
        progress: Option<f64>,
    }
}

/// Where an image comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootResourceKind {
    /// From a mirror.
    Synced,
    /// From a user.
    Uploaded,
    /// Made by MAAS.
    Generated,
}

impl BootResourceKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Uploaded => "uploaded",
            Self::Generated => "generated",
        }
    }
}

/// Calls about images; see [`Client::boot_resources`].
#[derive(Debug, Clone, Copy)]
pub struct BootResources<'a> {
    client: &'a Client,
}

impl Client {
    /// Images.
    pub fn boot_resources(&self) -> BootResources<'_> {
        BootResources { client: self }
    }
}

impl BootResources<'_> {
    /// All images, or those of one kind.
    pub async fn list(&self, kind: Option<BootResourceKind>) -> Result<Vec<BootResource>> {
        let call = Call::get("boot_resources.list", "boot-resources/", &[])?;
        self.client.json(call.query_all("type", kind.map(BootResourceKind::as_str))).await
    }

    /// One image, with its versions.
    pub async fn read(&self, id: i64) -> Result<BootResource> {
        let call = Call::get("boot_resources.read", "boot-resources/{id}/", &[&id.to_string()])?;
        self.client.json(call.of(&["BootResource"])).await
    }

    /// Whether images are being downloaded.
    pub async fn is_importing(&self) -> Result<bool> {
        self.client.json(Call::get("boot_resources.is_importing", "boot-resources/?op=is_importing", &[])?).await
    }
}
