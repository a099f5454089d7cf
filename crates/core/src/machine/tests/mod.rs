//! The decisions, as tables and as properties over anything that can be observed.

mod arbitrary;
mod debt;
mod extra;
mod fixture;
mod hosting;
mod leaving;
mod living;
mod ownership;
mod properties;
mod table;
mod vm;
mod vm_table;
