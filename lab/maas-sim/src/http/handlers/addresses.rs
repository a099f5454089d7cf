//! Addresses that users reserve and release.

use std::net::IpAddr;

use super::{
    super::{Call, render::network, reply::Reply, surface::IpAddressesAction},
    list,
};
use crate::model::{Model, Outcome, Refusal, db::AllocType, network::ReserveRequest};

pub(crate) fn addresses(model: &mut Model, call: &Call, action: IpAddressesAction) -> Outcome<Reply> {
    let form = call.posted();
    match action {
        IpAddressesAction::Read => {
            let all = form.boolean("all")?;
            let refused = |status, words: &str| Err(Refusal::Handler { status, body: words.to_owned() });
            let ip: Option<IpAddr> = match form.get("ip").map(str::parse) {
                None => None,
                Some(Ok(ip)) => Some(ip),
                Some(Err(_)) => return refused(400, "Parameter 'ip' must contain an IP address."),
            };
            let owner = form.get("owner");
            if all && !call.admin {
                return refused(403, "Listing all IP addresses requires admin privileges.");
            }
            if owner.is_some() && !call.admin {
                return refused(403, "Listing another user's IP addresses requires admin privileges.");
            }
            let user = match owner {
                Some(name) => Some(model.user_by_name(name).map(|user| user.id)),
                None => (!all).then_some(Some(call.user)),
            };
            let rows = model.db.addresses.values().filter(|row| {
                row.ip.is_some()
                    && ip.is_none_or(|ip| row.ip == Some(ip))
                    && user.is_none_or(|user| user.is_some() && row.user == user)
                    && (all || row.alloc == AllocType::UserReserved)
            });
            list(rows.map(|row| network::address(model, row)).collect())
        }
        IpAddressesAction::Reserve => {
            let request = ReserveRequest {
                subnet: form.text("subnet"),
                ip: form.text("ip").filter(|text| !text.is_empty()).or_else(|| form.text("ip_address")),
                hostname: form.text("hostname"),
                mac: form.text("mac").filter(|mac| !mac.is_empty()),
            };
            let id = model.reserve_address(call.user, &request)?;
            let row = model.db.addresses.get(&id).ok_or(Refusal::NotFound("StaticIPAddress"))?;
            Ok(Reply::json(&network::address(model, row)))
        }
        IpAddressesAction::Release => {
            let ip = form.mandatory("ip")?;
            model.release_address(call.user, ip, form.boolean("force")?, form.boolean("discovered")?)?;
            Ok(Reply::deleted())
        }
    }
}
