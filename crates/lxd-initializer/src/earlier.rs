//! The last step: a certificate that was trusted before the key pair was replaced is no longer trusted.

use crate::{
    decide::{self, Mode},
    effect::Effect,
    names,
    observed::{Lookup, MaasFacts, NodeFacts, Observed, ServerFacts},
    plan::Verdict,
};

/// A key pair is replaced because it was lost or compromised, so its certificate must not stay trusted. But it is
/// removed only once MAAS uses the new one, or MAAS would be locked out.
pub(crate) fn verdict(observed: &Observed, node: &NodeFacts, server: &ServerFacts) -> Verdict {
    let Lookup::Found(certificate) = decide::certificate(observed) else {
        return Verdict::Wait("there is no certificate to trust yet".into());
    };
    let print = match &server.earlier {
        Lookup::Unknown(why) => {
            return Verdict::Holds(format!("whether LXD trusts an earlier certificate is not known: {why}"));
        }
        Lookup::Absent => return Verdict::Holds("LXD trusts no earlier certificate".into()),
        Lookup::Found(earlier) => match earlier.first() {
            Some(print) => print,
            None => return Verdict::Holds("LXD trusts no earlier certificate".into()),
        },
    };
    let in_use = match (decide::mode(observed), &observed.maas) {
        (Some(Mode::Managed), _) => {
            node.annotations.get(names::MAAS_CERTIFICATE) == Some(&certificate.fingerprint.to_string())
        }
        (Some(Mode::Standalone), MaasFacts::Here(view)) => {
            let own = certificate.fingerprint.to_string();
            view.host.found().is_some_and(|host| host.certificate.as_ref() == Some(&own))
        }
        _ => false,
    };
    if in_use {
        Verdict::Do(Effect::Distrust { fingerprint: *print }, format!("distrusts the earlier certificate {print}"))
    } else {
        Verdict::Holds(format!("LXD trusts the earlier certificate {print} until MAAS uses the new one"))
    }
}
