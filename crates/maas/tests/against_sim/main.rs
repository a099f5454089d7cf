//! The client against the simulator: every call and every kind of error, as MAAS 3.0, 3.4, 3.7 and 3.8. The two share
//! no code, so that two mistakes cannot cancel each other out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unreachable_pub, reason = "the modules of a test program are all its own")]

mod calls;
mod errors;
mod faults;
mod vm_hosts;
mod world;

macro_rules! for_each_version {
    ($($module:ident :: $scenario:ident),+ $(,)?) => {
        mod maas_3_0 { $( #[tokio::test(start_paused = true)] async fn $scenario() { super::$module::$scenario("3.0").await; } )+ }
        mod maas_3_4 { $( #[tokio::test(start_paused = true)] async fn $scenario() { super::$module::$scenario("3.4").await; } )+ }
        mod maas_3_7 { $( #[tokio::test(start_paused = true)] async fn $scenario() { super::$module::$scenario("3.7").await; } )+ }
        mod maas_3_8 { $( #[tokio::test(start_paused = true)] async fn $scenario() { super::$module::$scenario("3.8").await; } )+ }
    };
}

for_each_version! {
    calls::the_server_says_who_and_what_it_is,
    calls::zones_pools_and_domains_are_listed,
    calls::names_have_addresses,
    calls::networks_are_read,
    calls::addresses_are_reserved_and_given_back,
    calls::tags_are_put_on_machines,
    calls::images_are_listed,
    calls::machines_are_found_by_every_filter,
    calls::a_machine_lives_from_allocation_to_release,
    calls::interfaces_are_changed_while_a_machine_is_allocated,
    calls::the_event_log_tells_what_happened_and_loses_what_a_restored_backup_lacks,
    vm_hosts::a_vm_host_lives_from_registration_to_removal,
    vm_hosts::what_a_vm_host_refuses,
    errors::absence_is_said_only_about_the_very_object,
    errors::refusals_of_machines_have_their_kinds,
    errors::refusals_of_names_and_addresses_have_their_kinds,
    errors::keys_and_rights_are_denied,
    errors::trouble_of_the_server_is_told_apart,
    faults::an_allocation_whose_answer_is_lost_is_found_by_its_key,
    faults::an_effect_may_come_after_the_client_has_given_up,
    faults::what_stands_between_is_told_apart_from_maas,
}
