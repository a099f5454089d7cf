//! Storage layouts of machines, and file systems that need no disk. A layout is checked but not applied: a deployment
//! here writes no disk. From MAAS's source, not recorded.

use super::super::forms::Form;
use crate::model::{
    Outcome, Refusal, Status,
    db::{Disk, Machine, SpecialFilesystem},
    refusal::FormCheck,
};

const LAYOUTS: &[&str] = &["bcache", "blank", "custom", "flat", "lvm", "vmfs6", "vmfs7"];
const MIB: i64 = 1024 * 1024;
const EFI_SIZE: i64 = 512 * MIB;
const LEAST_BOOT: i64 = 512 * MIB;
const LEAST_ROOT: i64 = 3 * 1024 * MIB;
const LEAST_VMFS: i64 = 10 * 1024 * MIB;

/// The file systems that may be mounted without a disk.
const WITHOUT_DISK: &[&str] = &["ramfs", "tmpfs"];
const LONGEST_PATH: usize = 4095;

/// `op=set_storage_layout`.
pub(super) fn set(machine: &Machine, form: &Form) -> Outcome<()> {
    if machine.status != Status::Ready {
        return Err(Refusal::conflict("Cannot change the storage layout on a machine that is not Ready."));
    }
    let mut check = FormCheck::default();
    let layout = check.require("storage_layout", form.get("storage_layout")).unwrap_or_default();
    if check.is_fine() {
        check.choice("storage_layout", layout, LAYOUTS);
    }
    check.done()?;
    let Some(boot) = machine.disks.first() else {
        return Err(Refusal::bad_request("Machine is missing a boot disk; no storage layout can be applied."));
    };
    let mut check = FormCheck::default();
    check_sizes(form, layout, boot, &mut check);
    check_device(form, "root_device", &mut machine.disks.iter(), &mut check);
    if layout == "bcache" {
        check_device(form, "cache_device", &mut machine.disks.iter().skip(1), &mut check);
    }
    check.done()?;
    let caches = || machine.disks.iter().skip(1).any(|disk| disk.tags.iter().any(|tag| tag == "ssd"));
    if layout == "bcache" && given(form, "cache_device").is_none() && !caches() {
        let why = "Node doesn't have an available cache device to setup bcache.";
        return Err(Refusal::bad_request(format!("Failed to configure storage layout '{layout}': {why}")));
    }
    Ok(())
}

fn given<'a>(form: &'a Form, key: &str) -> Option<&'a str> {
    form.get(key).filter(|text| !text.is_empty())
}

fn check_sizes(form: &Form, layout: &str, disk: &Disk, check: &mut FormCheck) {
    let rest = disk.size - EFI_SIZE;
    let boot = size(form, "boot_size", rest, (LEAST_BOOT, rest - LEAST_ROOT), check);
    let root = size(form, "root_size", rest, (LEAST_ROOT, rest - LEAST_BOOT), check);
    let free = rest - boot.unwrap_or(0);
    if root.is_some_and(|root| root > free) {
        let words =
            "Size of the boot partition and root partition are larger than the available space on the boot disk.";
        check.add("__all__", words);
    } else if layout == "lvm" {
        let most = root.unwrap_or(free);
        size(form, "lv_size", most, (LEAST_ROOT, most), check);
    } else if layout.starts_with("vmfs") && disk.size < LEAST_VMFS {
        check.add("boot_size", "Boot disk must be at least 10Gb.");
    }
}

/// A size in bytes, with a decimal unit, or as a part of `whole`.
fn size(form: &Form, key: &str, whole: i64, (least, most): (i64, i64), check: &mut FormCheck) -> Option<i64> {
    let text = given(form, key)?;
    let Some(size) = bytes(text, whole) else {
        check.add(key, "Enter a valid value.");
        return None;
    };
    if size < least {
        check.add(key, format!("Size is too small. Minimum size is {least}."));
    } else if size > most {
        check.add(key, format!("Size is too large. Maximum size is {most}."));
    }
    Some(size).filter(|_| !check.is_wrong(key))
}

fn bytes(text: &str, whole: i64) -> Option<i64> {
    if let Some(percent) = text.strip_suffix('%') {
        let is_number = percent.starts_with(|c: char| c.is_ascii_digit())
            && percent.chars().all(|c| c.is_ascii_digit() || c == '.')
            && percent.matches('.').count() <= 1;
        let percent: f64 = percent.trim_end_matches('.').parse().ok().filter(|_| is_number)?;
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        return Some((whole as f64 * percent / 100.0).ceil() as i64);
    }
    let units = ["k", "m", "g", "t", "p", "e"];
    let lower = text.to_ascii_lowercase();
    let unit = units.iter().zip(1u32..).find_map(|(unit, power)| Some((lower.strip_suffix(unit)?, power)));
    let (number, power) = unit.unwrap_or((&lower, 0));
    let is_number = number.strip_prefix('-').unwrap_or(number).bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = number.parse().ok().filter(|_| is_number)?;
    Some(number.saturating_mul(1000i64.saturating_pow(power)))
}

fn check_device(form: &Form, key: &str, disks: &mut dyn Iterator<Item = &Disk>, check: &mut FormCheck) {
    if let Some(id) = given(form, key) {
        let ids: Vec<String> = disks.map(|disk| disk.id.to_string()).collect();
        check.choice(key, id, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

fn check_mountable(machine: &Machine, what: &str) -> Outcome<()> {
    if matches!(machine.status, Status::Ready | Status::Allocated) {
        return Ok(());
    }
    let words = format!("Cannot {what} the filesystem because the machine is not Ready or Allocated.");
    Err(Refusal::conflict(words))
}

fn mount_point<'a>(form: &'a Form, check: &mut FormCheck) -> Option<&'a str> {
    let path = check.require("mount_point", form.get("mount_point"))?;
    let length = path.chars().count();
    if length > LONGEST_PATH {
        let words = format!("Ensure this value has at most {LONGEST_PATH} characters (it has {length}).");
        check.add("mount_point", words);
    }
    if !path.starts_with('/') {
        check.add("mount_point", "Enter a valid value.");
    }
    Some(path)
}

/// `op=mount_special`.
pub(super) fn mount(machine: &mut Machine, form: &Form) -> Outcome<()> {
    check_mountable(machine, "mount")?;
    let mut check = FormCheck::default();
    let mount_point = mount_point(form, &mut check);
    let fstype = check.require("fstype", form.get("fstype"));
    if let Some(kind) = fstype.filter(|kind| !WITHOUT_DISK.contains(kind)) {
        check.add("fstype", format!("Select a valid choice. {kind} is not one of the available choices."));
    }
    check.done()?;
    machine.special_filesystems.push(SpecialFilesystem {
        fstype: fstype.unwrap_or_default().to_owned(),
        mount_point: mount_point.unwrap_or_default().to_owned(),
        mount_options: form.get("mount_options").unwrap_or_default().trim().to_owned(),
        acquired: machine.owner.is_some(),
    });
    Ok(())
}

/// `op=unmount_special`.
pub(super) fn unmount(machine: &mut Machine, form: &Form) -> Outcome<()> {
    check_mountable(machine, "unmount")?;
    let mut check = FormCheck::default();
    let path = mount_point(form, &mut check).unwrap_or_default();
    let mounted = machine.shown_special_filesystems().any(|system| system.mount_point == path);
    if check.is_fine() && !mounted {
        check.add("mount_point", "No special filesystem is mounted at this path.");
    }
    check.done()?;
    let acquired = machine.status.is_allocated();
    machine.special_filesystems.retain(|system| system.mount_point != path || system.acquired != acquired);
    Ok(())
}
