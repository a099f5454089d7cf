//! The decisions, as tables and as properties over anything that can be observed.

mod arbitrary;
mod debt;
mod extra;
mod fixture;
mod hosting;
mod kind;
mod leaving;
mod living;
mod odd;
mod off;
mod ownership;
mod properties;
mod table;
mod vm;
mod vm_table;
