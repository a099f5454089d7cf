//! Writes the CustomResourceDefinitions and a list of them for kustomize into a folder: `crdgen config/crd`.

use std::{path::PathBuf, process::ExitCode};

use capmaas_api::crd;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        eprintln!(
            "usage: crdgen FOLDER\nWrites one file for each CustomResourceDefinition, and kustomization.yaml, into FOLDER."
        );
        return ExitCode::FAILURE;
    };
    match write_all(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crdgen: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn write_all(folder: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::create_dir_all(folder)?;
    for (name, text) in crd::files()? {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
