//! The program `lxd-test`.

use std::process::ExitCode;

use capmaas_diag::lxd_test::{LxdTestArgs, run};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let args = LxdTestArgs::parse();
    capmaas_diag::prepare();
    capmaas_diag::exit(run(args).await)
}
