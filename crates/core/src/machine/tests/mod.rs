//! The decisions, as tables and as properties over anything that can be observed.

mod arbitrary;
mod debt;
mod fixture;
mod hosting;
mod kind;
mod odd;
mod off;
mod ownership;
mod properties;
mod provisioning;
mod releasing;
mod surplus;
mod table;
mod vm;
mod vm_table;
