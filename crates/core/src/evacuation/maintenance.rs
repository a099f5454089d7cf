//! A person's request to put a host into maintenance, carried into MAAS, where every manager sees it.
//!
//! The tag is put on the VM host and not on its machine: it disappears with the VM host when that is unregistered, so a released
//! machine never carries it to its next owner.

use crate::Lookup;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmHost {
    pub id: i64,
    /// It carries the tag.
    pub tagged: bool,
}

/// The next step for the tag. At most one is performed in a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Records on the MaasMachine that the tag of this VM host is ours. After a crash: the annotation shows it, or it is written
    /// again.
    RecordTag(i64),
    /// Tags the VM host. After a crash: the VM host shows the tag, or it is added again; adding a tag twice changes nothing.
    Tag(i64),
    /// Removes the tag from the VM host. After a crash: the VM host does not show the tag any more, or it is removed again.
    Untag(i64),
    /// Removes the annotation. After a crash: the annotation is gone, or it is removed again.
    ForgetTag,
    /// Whether the VM host carries the tag is not known.
    Wait(String),
}

/// `noted` is the VM host whose tag is ours. A tag that existed before we recorded anything is a person's: it stays.
pub fn step(wanted: bool, noted: Option<i64>, host: &Lookup<VmHost>) -> Step {
    if !wanted && noted.is_none() {
        return Step::Nothing;
    }
    match host {
        Lookup::Unknown(why) => Step::Wait(why.clone()),
        Lookup::Absent if wanted => Step::Nothing,
        Lookup::Absent => Step::ForgetTag,
        Lookup::Found(VmHost { id, tagged }) => match (wanted, noted == Some(*id), tagged) {
            (true, _, true) => Step::Nothing,
            (true, true, false) => Step::Tag(*id),
            (true, false, false) => Step::RecordTag(*id),
            (false, true, true) => Step::Untag(*id),
            (false, _, _) => Step::ForgetTag,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Performs the steps until nothing is left to do, crashing before every write once in between.
    fn settle(wanted: bool, mut noted: Option<i64>, mut host: VmHost) -> (Option<i64>, bool, Vec<Step>) {
        let mut steps = Vec::new();
        for _ in 0..5 {
            let next = step(wanted, noted, &Lookup::Found(host));
            assert_eq!(
                next,
                step(wanted, noted, &Lookup::Found(host)),
                "a pass that died leaves the next one the same step"
            );
            match &next {
                Step::Nothing => break,
                Step::RecordTag(id) => noted = Some(*id),
                Step::Tag(id) | Step::Untag(id) => {
                    assert_eq!((*id, noted), (host.id, Some(host.id)), "nothing is changed in MAAS that is not noted");
                    host.tagged = matches!(next, Step::Tag(_));
                }
                Step::ForgetTag => noted = None,
                Step::Wait(why) => panic!("{why}"),
            }
            steps.push(next);
        }
        (noted, host.tagged, steps)
    }

    #[test]
    fn s31_the_tag_is_noted_put_taken_off_and_forgotten() {
        let bare = VmHost { id: 7, tagged: false };
        assert_eq!(settle(true, None, bare), (Some(7), true, vec![Step::RecordTag(7), Step::Tag(7)]));
        let tagged = VmHost { id: 7, tagged: true };
        assert_eq!(settle(false, Some(7), tagged), (None, false, vec![Step::Untag(7), Step::ForgetTag]));
        assert_eq!(settle(false, Some(7), bare), (None, false, vec![Step::ForgetTag]), "noted and never put");
    }

    #[test]
    fn s31_a_tag_that_a_person_put_there_stays() {
        let tagged = VmHost { id: 7, tagged: true };
        assert_eq!(settle(true, None, tagged), (None, true, vec![]));
        assert_eq!(settle(false, None, tagged), (None, true, vec![]));
        // The machine was registered again since: the tag on the new VM host is not the recorded one.
        assert_eq!(settle(false, Some(6), tagged), (None, true, vec![Step::ForgetTag]));
    }

    #[test]
    fn s01_nothing_is_done_while_the_vm_host_is_not_known() {
        let unknown = Lookup::Unknown("MAAS does not answer".to_owned());
        assert!(matches!(step(true, None, &unknown), Step::Wait(_)));
        assert!(matches!(step(false, Some(7), &unknown), Step::Wait(_)));
        assert_eq!(step(false, None, &unknown), Step::Nothing);
        assert_eq!(step(true, Some(7), &Lookup::Absent), Step::Nothing, "there is nothing to close yet");
        assert_eq!(step(false, Some(7), &Lookup::Absent), Step::ForgetTag, "the tag went with the VM host");
    }
}
