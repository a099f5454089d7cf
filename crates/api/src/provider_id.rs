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
//!
//! MAAS takes blanks and letters of every script in the name of a zone. In what we write they are percent-encoded, as in a URL; in
//! what the Go provider wrote they stand as they are.

use std::{fmt, fmt::Write as _, str::FromStr};

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
    /// As it stands there.
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
    /// Zone and system ID must not be empty and must not hold a slash, which no name in MAAS does.
    pub fn new(scheme: Scheme, slashes: Slashes, zone: &str, system_id: &str) -> Result<Self, NotAProviderId> {
        format!("{}:{}{}/{system_id}", scheme.as_str(), slashes.as_str(), encoded(zone)).parse()
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
    pub fn zone(&self) -> String {
        decoded(&self.zone)
    }

    /// The system ID of the machine in MAAS; `None` for the prototype's form, which names host and VM instead.
    pub fn system_id(&self) -> Option<&str> {
        match &self.machine {
            Named::SystemId(id) => Some(id),
            Named::OnHost { .. } => None,
        }
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
        let (zone_of, others) = parts.split_first().map_or(("", &[][..]), |(zone, others)| (*zone, others));
        let blank = |c: char| c.is_whitespace() || c.is_control();
        if others.iter().any(|part| part.contains(blank)) || zone_of.contains(|c| blank(c) && c != ' ') {
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

/// As a URL has it: everything but letters and digits of ASCII and four signs is a percent sign and two hexadecimal digits for each
/// byte. A slash stays, because it is refused.
fn encoded(zone: &str) -> String {
    let mut text = String::with_capacity(zone.len());
    for byte in zone.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/') {
            text.push(char::from(byte));
        } else {
            // Cannot fail: it is a String.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The name of the zone. No zone in MAAS has a percent sign in its name; one that begins no encoded byte stands for itself.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
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
                (id.scheme(), id.slashes(), id.zone().as_str(), id.system_id()),
                (scheme, slashes, "az1", Some("y3b3x3"))
            );
            assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn the_form_of_the_prototype_names_host_and_vm_but_no_machine() {
        let id = read("maas-lxd:///az1/h0st01/vm-a");
        assert_eq!(id.system_id(), None);
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
        assert_eq!(read("maas:///az1/y3b3x3").system_id(), read("maas-lxd://az2/y3b3x3").system_id());
        assert_ne!(read("maas:///az1/y3b3x3").system_id(), read("maas:///az1/aaaaaa").system_id());
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
            ("maas:///az/y3b 3x3", "blank"),
            ("maas:///a\tz/y3b3x3", "blank"),
            ("maas-lxd:///az/h0st01/vm a", "blank"),
        ] {
            let error = text.parse::<ProviderId>().unwrap_err().to_string();
            assert!(error.contains(fault), "{error}");
        }
        assert!(ProviderId::new(Scheme::Maas, Slashes::Two, "", "abc123").is_err());
        assert!(ProviderId::new(Scheme::Maas, Slashes::Two, "a/b", "abc123").is_err());
    }

    #[test]
    fn zones_with_blanks_and_letters_of_every_script_are_encoded_and_old_ones_read() {
        for (zone, text) in [
            ("rack 1", "maas://rack%201/abc123"),
            ("münchen", "maas://m%C3%BCnchen/abc123"),
            ("az_1-b", "maas://az_1-b/abc123"),
        ] {
            let made = ProviderId::new(Scheme::Maas, Slashes::Two, zone, "abc123").unwrap();
            assert_eq!((made.to_string().as_str(), made.zone().as_str()), (text, zone));
            assert_eq!(read(text), made);
            let old = read(&format!("maas:///{zone}/abc123"));
            assert_eq!((old.zone().as_str(), old.system_id()), (zone, Some("abc123")));
            assert_eq!(old.to_string(), format!("maas:///{zone}/abc123"), "never rewritten");
            assert_eq!(old.system_id(), made.system_id());
        }
        assert_eq!(read("maas://50%/abc123").zone(), "50%", "no encoded byte");
        assert_eq!(read("maas://%FF/abc123").zone(), "%FF", "no text");
    }

    proptest! {
        #[test]
        fn what_is_made_is_read_back(
            lxd in any::<bool>(), three in any::<bool>(), zone in "[a-z0-9ü日][a-z0-9_. é-]{0,20}", id in "[a-z0-9]{6}",
        ) {
            let scheme = if lxd { Scheme::MaasLxd } else { Scheme::Maas };
            let slashes = if three { Slashes::Three } else { Slashes::Two };
            let made = ProviderId::new(scheme, slashes, &zone, &id).unwrap();
            prop_assert!(made.to_string().is_ascii() && !made.to_string().contains(' '));
            prop_assert_eq!(made.zone(), zone);
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
