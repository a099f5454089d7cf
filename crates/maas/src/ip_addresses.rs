//! IP addresses in use.

use std::net::IpAddr;

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::subnets::Subnet;
use crate::tolerant::wire_type;
use crate::users::User;

wire_type! {
    /// An address in use.
    IpAddress {
        /// The address. None while the machine that it is meant for is not deployed.
        ip: Option<String>,
        /// Why it is in use: 0 by a machine, 1 fixed, 4 reserved by a user, 5 by DHCP, 6 observed on the network.
        alloc_type: Option<i64>,
        /// The same as text.
        alloc_type_name: Option<String>,
        /// The subnet it is in, if MAAS knows one.
        subnet: Option<Subnet>,
        /// Who reserved it.
        owner: Option<User>,
        /// When, in UTC but without a time zone.
        created: Option<String>,
        /// The interfaces that have it.
        interface_set: Vec<AddressHolder>,
    }
}

wire_type! {
    /// An interface that has an address.
    AddressHolder {
        /// The id of the interface.
        id: Option<i64>,
        /// Its machine.
        system_id: Option<String>,
        /// Its name.
        name: Option<String>,
    }
}

/// Which addresses to list.
#[derive(Debug, Clone, Default)]
pub struct IpAddressFilter {
    /// This address only.
    pub ip: Option<IpAddr>,
    /// Those of this user; needs an administrator.
    pub owner: Option<String>,
    /// All addresses in use; needs an administrator.
    pub all: bool,
}

/// Calls about addresses; see [`Client::ip_addresses`].
#[derive(Debug, Clone, Copy)]
pub struct IpAddresses<'a> {
    client: &'a Client,
}

impl Client {
    /// IP addresses in use.
    pub fn ip_addresses(&self) -> IpAddresses<'_> {
        IpAddresses { client: self }
    }
}

impl IpAddresses<'_> {
    /// Addresses that match; without a filter, those that this user reserved.
    pub async fn list(&self, filter: &IpAddressFilter) -> Result<Vec<IpAddress>> {
        let mut call = Call::get("ip_addresses.list", "ipaddresses/", &[])?
            .query_all("ip", filter.ip)
            .query_all("owner", &filter.owner);
        if filter.all {
            call = call.query("all", true);
        }
        self.client.json(call).await
    }

    /// Reserves an address. A taken one is [`AddressInUse`](crate::ErrorKind::AddressInUse), one in a dynamic range is
    /// [`Invalid`](crate::ErrorKind::Invalid).
    pub async fn reserve(&self, ip: IpAddr) -> Result<IpAddress> {
        self.client.json(Call::post("ip_addresses.reserve", "ipaddresses/?op=reserve", &[])?.field("ip", ip)).await
    }

    /// Releases an address that this user reserved. MAAS answers the same ([`Invalid`](crate::ErrorKind::Invalid)) for
    /// an address that does not exist and for one of another user.
    pub async fn release(&self, ip: IpAddr) -> Result<()> {
        self.client.empty(Call::post("ip_addresses.release", "ipaddresses/?op=release", &[])?.field("ip", ip)).await
    }
}
