//! Provider IDs: the name by which Kubernetes and MAAS mean the same machine.
//!
//! Every form in the field is read; none is ever rewritten. The forms:
//!
//! | form | who writes it |
//! |---|---|
//! | `maas://<zone>/<system id>` | we, for metal |
//! | `maas-lxd://<zone>/<system id>` | we, for VMs |
//! | `maas:///<zone>/<system id>` | the Go provider, for metal and VMs alike; we, in a cluster whose machines use it |
//! | `maas-lxd:///<zone>/<system id>` | read only |
//! | `maas-lxd:///<zone>/<host system id>/<vm name>` | a prototype; read only, and it names no machine |

use std::{fmt, str::FromStr};

/// The scheme says what kind of machine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// `maas`: a physical machine; of the Go provider possibly a VM.
    Maas,
    /// `maas-lxd`: a VM.
    MaasLxd,
}

impl Scheme {
    /// As it stands before the colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Maas => "maas",
            Self::MaasLxd => "maas-lxd",
        }
    }
}

/// How many slashes follow the colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slashes {
    /// `maas://zone/…`: the zone stands where a URL has its host.
    Two,
    /// `maas:///zone/…`: the Go provider's form.
    Three,
}

impl Slashes {
    fn as_str(self) -> &'static str {
        match self {
            Self::Two => "//",
            Self::Three => "///",
        }
    }
}

/// A provider ID, taken apart. Printing it gives the text that was read, letter by letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderId {
    scheme: Scheme,
    slashes: Slashes,
    zone: String,
    machine: Named,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Named {
    SystemId(String),
    OnHost { host: String, vm: String },
}

/// A text that is no provider ID of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a provider ID of this provider: {fault}; expected maas://<zone>/<system ID> or maas-lxd://<zone>/<system ID>"
)]
pub struct NotAProviderId {
    /// The text.
    pub text: String,
    fault: &'static str,
}

impl ProviderId {
    /// A new one for a machine. `slashes` is [`Slashes::Three`] only for metal in a cluster whose machines use that form.
    ///
    /// Zone and system ID must not be empty and must not hold a slash or a blank, which no name in MAAS does.
    pub fn new(scheme: Scheme, slashes: Slashes, zone: &str, system_id: &str) -> Result<Self, NotAProviderId> {
        format!("{}:{}{zone}/{system_id}", scheme.as_str(), slashes.as_str()).parse()
    }

    /// What the scheme says about the kind of machine.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The form, so that new machines of a cluster can use the same.
    pub fn slashes(&self) -> Slashes {
        self.slashes
    }

    /// The MAAS zone at the time of writing. A machine may have been moved to another zone since.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// The system ID of the machine in MAAS; `None` for the prototype's form, which names host and VM instead.
    pub fn system_id(&self) -> Option<&str> {
        match &self.machine {
            Named::SystemId(id) => Some(id),
            Named::OnHost { .. } => None,
        }
    }

    /// Host system ID and VM name of the prototype's form.
    pub fn host_and_vm(&self) -> Option<(&str, &str)> {
        match &self.machine {
            Named::SystemId(_) => None,
            Named::OnHost { host, vm } => Some((host, vm)),
        }
    }

    /// Whether both mean the same machine, whatever the form.
    pub fn same_machine(&self, other: &Self) -> bool {
        self.machine == other.machine
    }
}

impl FromStr for ProviderId {
    type Err = NotAProviderId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = |fault| NotAProviderId { text: text.to_owned(), fault };
        let (scheme, rest) = text.split_once(':').ok_or_else(|| fault("it has no scheme"))?;
        let scheme = match scheme {
            "maas" => Scheme::Maas,
            "maas-lxd" => Scheme::MaasLxd,
            _ => return Err(fault("its scheme is another provider's")),
        };
        let rest = rest.strip_prefix("//").ok_or_else(|| fault("two slashes must follow the colon"))?;
        let (slashes, rest) = match rest.strip_prefix('/') {
            Some(rest) => (Slashes::Three, rest),
            None => (Slashes::Two, rest),
        };
        let parts: Vec<&str> = rest.split('/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(fault("a part of it is empty"));
        }
        if rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(fault("it holds a blank"));
        }
        let (zone, machine) = match (parts.as_slice(), scheme) {
            ([zone, id], _) => (*zone, Named::SystemId((*id).to_owned())),
            ([zone, host, vm], Scheme::MaasLxd) => {
                (*zone, Named::OnHost { host: (*host).to_owned(), vm: (*vm).to_owned() })
            }
            _ => return Err(fault("it does not consist of zone and system ID")),
        };
        Ok(Self { scheme, slashes, zone: zone.to_owned(), machine })
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}/", self.scheme.as_str(), self.slashes.as_str(), self.zone)?;
        match &self.machine {
            Named::SystemId(id) => f.write_str(id),
            Named::OnHost { host, vm } => write!(f, "{host}/{vm}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> ProviderId {
        text.parse().unwrap()
    }

    #[test]
    fn every_form_in_the_field_is_read_and_printed_as_it_was() {
        for (text, scheme, slashes) in [
            ("maas://az1/y3b3x3", Scheme::Maas, Slashes::Two),
            ("maas:///az1/y3b3x3", Scheme::Maas, Slashes::Three),
            ("maas-lxd://az1/y3b3x3", Scheme::MaasLxd, Slashes::Two),
            ("maas-lxd:///az1/y3b3x3", Scheme::MaasLxd, Slashes::Three),
        ] {
            let id = read(text);
            assert_eq!(
                (id.scheme(), id.slashes(), id.zone(), id.system_id()),
                (scheme, slashes, "az1", Some("y3b3x3"))
            );
            assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn the_form_of_the_prototype_names_host_and_vm_but_no_machine() {
        let id = read("maas-lxd:///az1/h0st01/vm-a");
        assert_eq!(id.system_id(), None);
        assert_eq!(id.host_and_vm(), Some(("h0st01", "vm-a")));
        assert_eq!(id.to_string(), "maas-lxd:///az1/h0st01/vm-a");
    }

    #[test]
    fn new_ones_are_written_as_document_004_says() {
        let metal = ProviderId::new(Scheme::Maas, Slashes::Two, "default", "abc123").unwrap();
        let vm = ProviderId::new(Scheme::MaasLxd, Slashes::Two, "default", "abc123").unwrap();
        assert_eq!(metal.to_string(), "maas://default/abc123");
        assert_eq!(vm.to_string(), "maas-lxd://default/abc123");
    }

    #[test]
    fn the_same_machine_is_recognised_across_forms() {
        assert!(read("maas:///az1/y3b3x3").same_machine(&read("maas-lxd://az2/y3b3x3")));
        assert!(!read("maas:///az1/y3b3x3").same_machine(&read("maas:///az1/aaaaaa")));
    }

    #[test]
    fn anything_else_is_refused_with_the_reason() {
        for (text, fault) in [
            ("", "no scheme"),
            ("az1/y3b3x3", "no scheme"),
            ("aws:///az1/i-1", "another provider's"),
            ("maas:/az1/y3b3x3", "two slashes"),
            ("maas:////y3b3x3", "empty"),
            ("maas:///az1/", "empty"),
            ("maas://y3b3x3", "zone and system ID"),
            ("maas:///az1/host/vm", "zone and system ID"),
            ("maas:///a z/y3b3x3", "blank"),
        ] {
            let error = text.parse::<ProviderId>().unwrap_err().to_string();
            assert!(error.contains(fault), "{error}");
        }
        assert!(ProviderId::new(Scheme::Maas, Slashes::Two, "", "abc123").is_err());
        assert!(ProviderId::new(Scheme::Maas, Slashes::Two, "a/b", "abc123").is_err());
    }

    proptest! {
        #[test]
        fn what_is_made_is_read_back(
            lxd in any::<bool>(), three in any::<bool>(), zone in "[a-z0-9][a-z0-9_.-]{0,20}", id in "[a-z0-9]{6}",
        ) {
            let scheme = if lxd { Scheme::MaasLxd } else { Scheme::Maas };
            let slashes = if three { Slashes::Three } else { Slashes::Two };
            let made = ProviderId::new(scheme, slashes, &zone, &id).unwrap();
            prop_assert_eq!(made.to_string().parse::<ProviderId>(), Ok(made));
        }

        #[test]
        fn no_text_makes_it_panic_and_what_is_read_prints_the_same(
            text in prop_oneof![".*", "maas(-lxd)?:[/]{0,4}[a-z0-9/ ]{0,12}"],
        ) {
            if let Ok(id) = text.parse::<ProviderId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
