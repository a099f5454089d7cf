//! DNS: resources with addresses, and other records.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    Model, Outcome, Refusal,
    db::{AllocType, DnsResource, Domain, Record, Table},
    refusal::FormCheck,
};
use crate::ledger::{Effect, ObjectChange, ObjectKind};

/// Parameters of a DNS resource.
#[derive(Clone, Debug, Default)]
pub struct DnsRequest {
    pub fqdn: Option<String>,
    pub name: Option<String>,
    pub domain: Option<String>,
    pub address_ttl: Option<String>,
    /// Separated by spaces; `None` if not given.
    pub ip_addresses: Option<String>,
}

impl Model {
    /// A domain by id or name.
    pub fn find_domain(&self, text: &str) -> Option<&Domain> {
        let id = text.parse::<i64>().ok();
        self.db.domains.values().find(|domain| Some(domain.id) == id || domain.name == text)
    }

    /// Name and domain of a full name, split as MAAS does: a domain's own name is its "@".
    pub fn split_fqdn(&self, fqdn: &str) -> Outcome<(String, i64)> {
        let domain = |name: &str| self.db.domains.values().find(|known| known.name == name).map(|known| known.id);
        if let Some(id) = domain(fqdn) {
            return Ok(("@".to_owned(), id));
        }
        // MAAS does not handle a name that does not match its pattern.
        let (label, rest) =
            separate(fqdn).ok_or_else(|| Refusal::crash("cannot unpack non-iterable NoneType object"))?;
        domain(rest).map(|id| (label.to_owned(), id)).ok_or(Refusal::NotFound("Domain"))
    }

    /// Name and domain of a name that may have no domain.
    pub fn split_fqdn_or_default(&self, name: &str) -> Outcome<(String, i64)> {
        let Some((label, domain)) = name.split_once('.').filter(|(label, _)| !label.is_empty()) else {
            return Ok((name.to_owned(), self.db.default_domain));
        };
        let known = self.db.domains.values().find(|known| known.name == domain).ok_or(Refusal::NotFound("Domain"))?;
        Ok((label.to_owned(), known.id))
    }

    /// The resource with a name.
    pub fn dns_by_name(&self, name: &str, domain: i64) -> Option<&DnsResource> {
        self.db.dns.values().find(|dns| dns.domain == domain && dns.name == name)
    }

    /// Full name of a resource.
    pub fn dns_fqdn(&self, dns: &DnsResource) -> String {
        let domain = self.db.domains.get(&dns.domain).map_or("", |domain| domain.name.as_str());
        if dns.name == "@" { domain.to_owned() } else { format!("{}.{domain}", dns.name) }
    }

    /// The name and domain of a request; `fqdn` is used only if neither is given.
    pub fn resolve_dns_name(&self, request: &DnsRequest) -> Outcome<(Option<String>, Option<i64>)> {
        if request.name.is_none() && request.domain.is_none() {
            return match request.fqdn.as_deref() {
                None => Ok((None, None)),
                Some(special @ ("" | "@" | "*")) => Ok((Some(special.to_owned()), None)),
                Some(fqdn) => self.split_fqdn(fqdn).map(|(name, domain)| (Some(name), Some(domain))),
            };
        }
        let domain = match request.domain.as_deref() {
            Some(text) => Some(self.find_domain(text).map(|domain| domain.id).ok_or(Refusal::NotFound("Domain"))?),
            None => None,
        };
        Ok((request.name.clone(), domain))
    }

    /// A required name and domain.
    fn required_dns_name(&self, request: &DnsRequest, check: &mut FormCheck) -> Outcome<(String, i64)> {
        let (name, domain) = self.resolve_dns_name(request)?;
        let name = check.require("name", name.as_deref()).unwrap_or_default().to_owned();
        if domain.is_none() {
            check.add("domain", "This field is required.");
        }
        Ok((name, domain.unwrap_or(self.db.default_domain)))
    }

    fn read_address_ttl(request: &DnsRequest, check: &mut FormCheck) -> Option<i64> {
        let ttl = check.at_least("address_ttl", request.address_ttl.as_deref().filter(|text| !text.is_empty()), 0);
        if ttl.is_some_and(|ttl| ttl > MAX_ADDRESS_TTL) {
            check.add("address_ttl", format!("Ensure this value is less than or equal to {MAX_ADDRESS_TTL}."));
        }
        ttl
    }

    /// `POST dnsresources/`.
    pub fn create_dns(&mut self, user: i64, request: &DnsRequest) -> Outcome<i64> {
        let mut check = FormCheck::default();
        let (name, domain) = self.required_dns_name(request, &mut check)?;
        let ttl = Self::read_address_ttl(request, &mut check);
        if request.ip_addresses.is_some() {
            check_address_name(&name, &mut check);
        }
        if self.dns_by_name(&name, domain).is_some() {
            check.add("__all__", "Labels must be unique within their zone.");
        }
        check.done()?;
        let addresses = self.rows_of_words(user, request.ip_addresses.as_deref().unwrap_or_default())?;
        let id = self.db.sequences.take(Table::Dns);
        self.effect(Effect::object(ObjectKind::Dns, &name, ObjectChange::Created));
        self.db.dns.insert(id, DnsResource { id, name, domain, address_ttl: ttl, addresses, records: Vec::new() });
        Ok(id)
    }

    /// `PUT dnsresources/{id}/`: the addresses are replaced as a whole; removed ones stay reserved.
    pub fn update_dns(&mut self, user: i64, id: i64, request: &DnsRequest) -> Outcome<()> {
        let (name, domain) = self.resolve_dns_name(request)?;
        let dns = self.db.dns.get(&id).ok_or(Refusal::NotFound("DNSResource"))?;
        let mut check = FormCheck::default();
        let ttl = Self::read_address_ttl(request, &mut check);
        let name = name.filter(|name| !name.is_empty());
        if request.ip_addresses.is_some() || !dns.addresses.is_empty() {
            check_address_name(name.as_deref().unwrap_or(&dns.name), &mut check);
        }
        let is_alias = || dns.records.iter().any(|record| record.rrtype == "CNAME");
        if check.is_fine() && !dns.addresses.is_empty() && is_alias() {
            check.add("__all__", "Cannot add address: CNAME present.");
        }
        check.done()?;
        let rows = match request.ip_addresses.as_deref() {
            Some(text) => Some(self.rows_of_words(user, text)?),
            None => None,
        };
        let dns = self.db.dns.get_mut(&id).ok_or(Refusal::NotFound("DNSResource"))?;
        dns.name = name.unwrap_or_else(|| std::mem::take(&mut dns.name));
        dns.domain = domain.unwrap_or(dns.domain);
        if request.address_ttl.is_some() {
            dns.address_ttl = ttl;
        }
        dns.addresses = rows.unwrap_or_else(|| std::mem::take(&mut dns.addresses));
        self.effect(Effect::object(ObjectKind::Dns, id, ObjectChange::Updated));
        Ok(())
    }

    /// Rows of a list of addresses, each as text or as the id of its row. The latter is from MAAS's source, not recorded.
    fn rows_of_words(&mut self, user: i64, text: &str) -> Outcome<BTreeSet<i64>> {
        let row = |word: &&str| word.parse().is_ok_and(|id: i64| self.db.addresses.contains_key(&id));
        let (ids, words): (Vec<&str>, Vec<&str>) = text.split_whitespace().partition(row);
        let mut rows = self.address_rows(user, &parse_ips(&words.join(" "))?);
        rows.extend(ids.into_iter().filter_map(|word| word.parse::<i64>().ok()));
        Ok(rows)
    }

    /// Rows for addresses: an address of a machine is bound, not copied; others become reserved for the user.
    pub fn address_rows(&mut self, user: i64, ips: &[IpAddr]) -> BTreeSet<i64> {
        let mut rows = BTreeSet::new();
        for ip in ips {
            let known = self.db.taken.get(ip).copied().or_else(|| {
                let seen = self.db.observed.contains(ip);
                let row = self.db.addresses.values().find(|row| seen && row.ip == Some(*ip))?;
                (row.alloc == AllocType::Discovered).then_some(row.id)
            });
            let id = known.unwrap_or_else(|| {
                let subnet = self.subnet_of(*ip).map(|subnet| subnet.id);
                self.new_address(AllocType::UserReserved, Some(*ip), subnet, Some(user))
            });
            rows.insert(id);
        }
        rows
    }

    /// A name for a reserved address, created if it does not exist.
    pub fn attach_name(&mut self, name: &str, domain: i64, address: i64) {
        let existing = self.dns_by_name(name, domain).map(|dns| dns.id);
        let id = existing.unwrap_or_else(|| self.db.sequences.take(Table::Dns));
        let entry = self.db.dns.entry(id).or_insert_with(|| DnsResource {
            id,
            name: name.to_owned(),
            domain,
            address_ttl: None,
            addresses: BTreeSet::new(),
            records: Vec::new(),
        });
        entry.addresses.insert(address);
    }

    /// `POST dnsresourcerecords/`. Returns the resource and the record.
    pub fn create_record(
        &mut self,
        request: &DnsRequest,
        rrtype: Option<&str>,
        rrdata: Option<&str>,
        ttl: Option<i64>,
    ) -> Outcome<(i64, i64)> {
        let mut check = FormCheck::default();
        let rrtype = check.require("rrtype", rrtype);
        let rrdata = check.require("rrdata", rrdata);
        let (name, domain) = self.required_dns_name(request, &mut check)?;
        check.done()?;
        let (Some(rrtype), Some(rrdata)) = (rrtype, rrdata) else { return Err(Refusal::required("rrtype")) };
        let rrtype = rrtype.to_uppercase();
        check_record(&rrtype, rrdata)?;
        let existing = self.dns_by_name(&name, domain);
        let is_cname = |record: &&Record| record.rrtype == "CNAME";
        if let Some(dns) = existing {
            let others = dns.records.iter().any(|record| !is_cname(&record)) || !dns.addresses.is_empty();
            let cname = dns.records.iter().any(|record| is_cname(&record));
            if if rrtype == "CNAME" { others } else { cname } {
                let words = "CNAME records for a name cannot coexist with non-CNAME records.";
                return Err(Refusal::field("__all__", words));
            }
            if rrtype == "CNAME" && cname {
                return Err(Refusal::field("__all__", "Only one CNAME can be associated with a name."));
            }
        }
        let existing = existing.map(|dns| dns.id);
        let id = existing.unwrap_or_else(|| self.db.sequences.take(Table::Dns));
        let record_id = self.db.sequences.take(Table::Record);
        let record = Record { id: record_id, rrtype, rrdata: rrdata.to_owned(), ttl };
        let entry = self.db.dns.entry(id).or_insert_with(|| DnsResource {
            id,
            name,
            domain,
            address_ttl: None,
            addresses: BTreeSet::new(),
            records: Vec::new(),
        });
        entry.records.push(record);
        Ok((id, record_id))
    }

    /// `op=set_default`: machines that nobody owns follow. From MAAS's source, not recorded.
    pub fn set_default_domain(&mut self, id: i64) {
        let old = std::mem::replace(&mut self.db.default_domain, id);
        for machine in self.db.machines.values_mut() {
            if machine.domain == old && machine.owner.is_none() {
                machine.domain = id;
            }
        }
    }

    /// `DELETE domains/{id}/`: deleting a domain in use violates a foreign key in MAAS.
    pub fn delete_domain(&mut self, id: i64) -> Outcome<()> {
        if !self.db.domains.contains_key(&id) {
            return Err(Refusal::NotFound("Domain"));
        }
        if id == self.db.default_domain {
            return Err(Refusal::bad_request("This domain is the default domain, it cannot be deleted."));
        }
        let nodes: Vec<String> = self
            .machines_in_order()
            .iter()
            .filter(|machine| machine.domain == id)
            .map(|machine| format!("<Node: {} ({})>", machine.system_id, machine.hostname))
            .collect();
        let names: Vec<String> = self
            .db
            .dns
            .values()
            .filter(|dns| dns.domain == id)
            .map(|dns| format!("<DNSResource: name={}>", dns.name))
            .collect();
        let mut keys = Vec::new();
        if !nodes.is_empty() {
            keys.push("'Node.domain'");
        }
        if !names.is_empty() {
            keys.push("'DNSResource.domain'");
        }
        if !keys.is_empty() {
            let instances: Vec<String> = nodes.into_iter().chain(names).collect();
            return Err(Refusal::crash(format!(
                "(\"Cannot delete some instances of model 'Domain' because they are referenced through protected \
                 foreign keys: {}.\", {{{}}})",
                keys.join(", "),
                instances.join(", ")
            )));
        }
        self.db.domains.remove(&id);
        Ok(())
    }

    /// The number of names in a domain that have addresses or records.
    pub fn record_count(&self, domain: i64) -> i64 {
        let names = self.db.dns.values().filter(|dns| dns.domain == domain);
        let count: usize = names.map(|dns| dns.records.len() + usize::from(!dns.addresses.is_empty())).sum();
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

/// The maximum TTL of an address.
const MAX_ADDRESS_TTL: i64 = (1 << 31) - 1;

/// Letters, digits and hyphens; hyphens only inside.
fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=64).contains(&text.len()) && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// A name with addresses is one label. That this is checked as soon as addresses are given is from MAAS's source, not
/// recorded; which release began with it is not known.
fn check_address_name(name: &str, check: &mut FormCheck) {
    if !matches!(name, "" | "@" | "*") && !is_label(name) {
        check.add("__all__", format!("Invalid dnsresource name: {name}."));
    }
}

/// The longest label at the beginning, whatever character follows it, and a domain.
fn separate(fqdn: &str) -> Option<(&str, &str)> {
    let ends: Vec<usize> = fqdn.char_indices().map(|(at, _)| at).skip(1).collect();
    ends.into_iter().rev().find_map(|end| {
        let (label, rest) = fqdn.split_at(end);
        let domain = rest.get(rest.chars().next()?.len_utf8()..)?;
        let fits = is_label(label) && domain.strip_suffix('.').unwrap_or(domain).split('.').all(is_label);
        fits.then_some((label, domain))
    })
}

/// Record types, in alphabetical order; MAAS lists them in any order.
const RRTYPES: &[&str] = &["CNAME", "MX", "NS", "SRV", "SSHFP", "TXT"];

/// Validates the data of a record. From MAAS's source, not recorded.
pub fn check_record(rrtype: &str, rrdata: &str) -> Outcome<()> {
    if !RRTYPES.contains(&rrtype) {
        return Err(Refusal::field("rrtype", format!("{rrtype} is not one of {}.", RRTYPES.join(" "))));
    }
    let words: Vec<&str> = rrdata.split_whitespace().collect();
    let is_number = |word: &&str| word.parse::<u16>().is_ok();
    let is_label = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let (fine, example, range) = match rrtype {
        "CNAME" => (words.len() == 1 && rrdata.chars().all(is_label), "<server>", ""),
        "MX" => (
            words.len() == 2 && words.first().is_some_and(is_number),
            "<preference> <server>",
            " Range for preference is 0-65535.",
        ),
        "SRV" => (
            words.len() == 4 && words.iter().take(3).all(is_number),
            "<priority> <weight> <port> <server>",
            " Range for priority, weight, and port are 0-65536.",
        ),
        "SSHFP" => (words.len() >= 3 && words.iter().take(2).all(is_number), "<algorithm> <fptype> <fingerprint>", ""),
        _ => (true, "", ""),
    };
    if fine {
        return Ok(());
    }
    Err(Refusal::field("__all__", format!("Invalid {rrtype}: Should be '{example}'.{range}")))
}

/// Addresses separated by spaces. MAAS fails on anything else.
pub fn parse_ips(text: &str) -> Outcome<Vec<IpAddr>> {
    text.split_whitespace()
        .map(|word| {
            word.parse().map_err(|_| Refusal::crash(format!("failed to detect a valid IP address from '{word}'")))
        })
        .collect()
}
