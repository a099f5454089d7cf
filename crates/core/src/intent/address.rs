//! `spec.staticIP`, whatever its form.

use std::net::IpAddr;

use capmaas_api::static_ip::StaticIp;
use capmaas_api::{MaasMachineSpec, reasons};

use super::Problem;
use crate::cluster::network::Network;

/// A requested fixed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FixedAddress {
    /// Another component, such as an IPAM controller, is going to fill it in; until then nothing is allocated.
    Awaited,
    Literal(IpAddr),
}

impl FixedAddress {
    /// Resolves the spec. Network, gateway and resolvers of the object form are not used: MAAS takes them from the subnet that
    /// holds the address. Only `cidr` is checked: it must contain the address.
    pub(super) fn of(spec: &MaasMachineSpec) -> Result<Option<Self>, Problem> {
        let Some(fixed) = &spec.static_ip else { return Ok(None) };
        let Some(text) = fixed.address().map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(Some(Self::Awaited));
        };
        let failed = |message: String| Problem { reason: reasons::STATIC_IP_FAILED, message };
        let Ok(address) = text.parse::<IpAddr>() else {
            return Err(failed(format!("spec.staticIP {text:?} is not an address; write one such as 192.168.1.100")));
        };
        if let StaticIp::Detailed(details) = fixed
            && let Some(cidr) = details.cidr.as_deref().map(str::trim).filter(|cidr| !cidr.is_empty())
            && let Some(network) = Network::parse(cidr)
            && !network.contains(address)
        {
            return Err(failed(format!(
                "spec.staticIP.ip {address} is not in spec.staticIP.cidr {cidr}; correct one of them"
            )));
        }
        Ok(Some(Self::Literal(address)))
    }

    /// The problem that is reported until it is filled in.
    pub fn awaited() -> Problem {
        Problem {
            reason: reasons::WAITING_FOR_STATIC_IP,
            message: "spec.staticIP has no address yet; fill it in".into(),
        }
    }
}
