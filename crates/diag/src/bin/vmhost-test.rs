//! The program `vmhost-test`.

use std::process::ExitCode;

use capmaas_diag::vmhost_test::{VmhostTestArgs, run};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let args = VmhostTestArgs::parse();
    capmaas_diag::prepare();
    capmaas_diag::exit(run(args).await)
}
