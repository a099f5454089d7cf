//! The API server accepts every manifest in the book and every sample.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_e2e::{install_crds, repository};
use capmaas_testbed::{CapiVersion, Testbed, parse_yaml};

/// The YAML blocks of a page that contain whole objects.
fn examples(text: &str) -> Vec<String> {
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("\n```"));
    blocks.map(|(block, _)| block.to_owned()).filter(|block| block.contains("apiVersion:")).collect()
}

#[tokio::test]
async fn every_example_of_the_book_and_every_sample_is_accepted() {
    let testbed = Testbed::builder().cluster_api(Some(CapiVersion::V1_14)).start().await.unwrap();
    install_crds(&testbed).await.unwrap();
    let mut seen = 0;
    let folders = ["docs", "config/samples"].map(|folder| std::fs::read_dir(repository().join(folder)).unwrap());
    for entry in folders.into_iter().flatten() {
        let path = entry.unwrap().path();
        let found = match path.extension().and_then(|extension| extension.to_str()) {
            Some("md") => examples(&std::fs::read_to_string(&path).unwrap()),
            // The CRDs of the Cluster API operator are not installed here.
            Some("yaml") if !path.ends_with("cluster-api-operator.yaml") => {
                vec![std::fs::read_to_string(&path).unwrap()]
            }
            _ => continue,
        };
        for example in found {
            for object in parse_yaml(&example).unwrap() {
                if let Some(namespace) = object["metadata"]["namespace"].as_str() {
                    // It may exist already.
                    let _ = testbed.kubectl(["create", "namespace", namespace]).await;
                }
            }
            let file = testbed.sandbox().dir().join("example.yaml");
            std::fs::write(&file, &example).unwrap();
            let file = file.display().to_string();
            let answer = testbed.kubectl(["apply", "--server-side", "--dry-run=server", "-f", &file]).await;
            assert!(answer.is_ok(), "{}: {answer:?}\n{example}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 4, "only {seen} examples were found");
    testbed.stop().await;
}
