//! The program `maas-test`.

use std::process::ExitCode;

use capmaas_diag::maas_test::{MaasTestArgs, run};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let args = MaasTestArgs::parse();
    capmaas_diag::prepare();
    capmaas_diag::exit(run(args).await)
}
