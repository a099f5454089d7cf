//! A person's word that a host is in maintenance, carried into MAAS, where every manager sees it.
//!
//! The tag is put on the VM host and not on its machine: it goes with the VM host when that is unregistered, so a machine that is
//! released never carries it to its next owner.

use crate::Lookup;

/// The VM host on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmHost {
    /// Its number.
    pub id: i64,
    /// It carries the tag.
    pub tagged: bool,
}

/// What comes next about the tag. At most one is done in a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// All is as it should be.
    Nothing,
    /// Writes on the MaasMachine that the tag of this VM host is ours. Lost: it is not there, and is written again.
    Note(i64),
    /// Puts the tag on the VM host. Lost: the VM host does not show it, and it is put again; adding a tag twice changes nothing.
    Tag(i64),
    /// Takes the tag off the VM host. Lost: the VM host still shows it.
    Untag(i64),
    /// Removes the note. Lost: the note is there, the tag is not.
    Forget,
    /// Whether the VM host carries the tag is not known.
    Wait(String),
}

/// Decides. `noted` is the VM host whose tag is ours. A tag that was there before we noted anything is a person's: it stays.
pub fn step(wanted: bool, noted: Option<i64>, host: &Lookup<VmHost>) -> Step {
    if !wanted && noted.is_none() {
        return Step::Nothing;
    }
    match host {
        Lookup::Unknown(why) => Step::Wait(why.clone()),
        Lookup::Absent if wanted => Step::Nothing,
        Lookup::Absent => Step::Forget,
        Lookup::Found(VmHost { id, tagged }) => match (wanted, noted == Some(*id), tagged) {
            (true, _, true) => Step::Nothing,
            (true, true, false) => Step::Tag(*id),
            (true, false, false) => Step::Note(*id),
            (false, true, true) => Step::Untag(*id),
            (false, _, _) => Step::Forget,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries the steps out until nothing is left to do, dying before every write once in between.
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
                Step::Note(id) => noted = Some(*id),
                Step::Tag(id) | Step::Untag(id) => {
                    assert_eq!((*id, noted), (host.id, Some(host.id)), "nothing is changed in MAAS that is not noted");
                    host.tagged = matches!(next, Step::Tag(_));
                }
                Step::Forget => noted = None,
                Step::Wait(why) => panic!("{why}"),
            }
            steps.push(next);
        }
        (noted, host.tagged, steps)
    }

    #[test]
    fn s31_the_tag_is_noted_put_taken_off_and_forgotten() {
        let bare = VmHost { id: 7, tagged: false };
        assert_eq!(settle(true, None, bare), (Some(7), true, vec![Step::Note(7), Step::Tag(7)]));
        let tagged = VmHost { id: 7, tagged: true };
        assert_eq!(settle(false, Some(7), tagged), (None, false, vec![Step::Untag(7), Step::Forget]));
        assert_eq!(settle(false, Some(7), bare), (None, false, vec![Step::Forget]), "noted and never put");
    }

    #[test]
    fn s31_a_tag_that_a_person_put_there_stays() {
        let tagged = VmHost { id: 7, tagged: true };
        assert_eq!(settle(true, None, tagged), (None, true, vec![]));
        assert_eq!(settle(false, None, tagged), (None, true, vec![]));
        // The machine was registered anew since: the tag on the new VM host is not the one that was noted.
        assert_eq!(settle(false, Some(6), tagged), (None, true, vec![Step::Forget]));
    }

    #[test]
    fn s01_nothing_is_done_while_the_vm_host_is_not_known() {
        let unknown = Lookup::Unknown("MAAS does not answer".to_owned());
        assert!(matches!(step(true, None, &unknown), Step::Wait(_)));
        assert!(matches!(step(false, Some(7), &unknown), Step::Wait(_)));
        assert_eq!(step(false, None, &unknown), Step::Nothing);
        assert_eq!(step(true, Some(7), &Lookup::Absent), Step::Nothing, "there is nothing to close yet");
        assert_eq!(step(false, Some(7), &Lookup::Absent), Step::Forget, "the tag went with the VM host");
    }
}
