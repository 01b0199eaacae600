//! Tenants as the edge uses them: decoded, with parsed keys and running gauges.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use kernel::TenantId;
use node::View;
use parking_lot::RwLock;
use tenants::{Quotas, Record, ShopperKeys, TenantRecord, TenantRow, VerifyingKeys};

use super::AuthError;
use super::quota::{Gauge, Rate};
use super::shopper::Verifier;

/// One tenant, as of one published view.
pub(crate) struct Tenant {
    pub(crate) record: TenantRecord,
    pub(crate) name: Arc<str>,
    pub(crate) rate: Option<Rate>,
    /// Of messages that are sent.
    pub(crate) message_rate: Option<Rate>,
    /// For its shoppers' tokens. Parsed here, once for each change of the record.
    pub(crate) verifier: Option<Arc<Verifier>>,
    pub(crate) gauge: Arc<Gauge>,
    pub(super) view_key: Vec<u8>,
    pub(super) etag: u64,
}

/// JWKS documents from the configuration, parsed.
#[derive(Clone, Default)]
pub struct JwksFiles(BTreeMap<String, Arc<Verifier>>);

impl JwksFiles {
    /// Reads documents by the name of the tenant whose shoppers they verify.
    ///
    /// # Errors
    /// [`AuthError`] names the first that cannot be used.
    pub fn read(files: &BTreeMap<String, PathBuf>) -> Result<JwksFiles, AuthError> {
        let mut verifiers = BTreeMap::new();
        for (tenant, path) in files {
            let whose = || (tenant.clone(), path.clone());
            let document = std::fs::read_to_string(path).map_err(|source| {
                let (tenant, path) = whose();
                AuthError::Unreadable { tenant, path, source }
            })?;
            let keys = VerifyingKeys::Jwks(document);
            let keys = ShopperKeys { keys, issuer: None, audience: None };
            let verifier = Verifier::new(&keys).map_err(|source| {
                let (tenant, path) = whose();
                AuthError::NotKeys { tenant, path, source }
            })?;
            verifiers.insert(tenant.clone(), Arc::new(verifier));
        }
        Ok(JwksFiles(verifiers))
    }
}

/// The tenants that have been seen.
pub(super) struct TenantBoard {
    files: JwksFiles,
    /// As many as there are tenants: a deleted one leaves.
    seen: RwLock<HashMap<TenantId, Arc<Tenant>>>,
}

impl TenantBoard {
    pub(super) fn new(files: JwksFiles) -> TenantBoard {
        TenantBoard { files, seen: RwLock::default() }
    }

    /// The tenant of a view; `None` when the view says that it is no more.
    pub(super) fn see(&self, id: TenantId, view: &View) -> Option<Arc<Tenant>> {
        if let Some(tenant) = self.seen.read().get(&id)
            && tenant.etag == view.etag
        {
            return Some(Arc::clone(tenant));
        }
        let TenantRow::Live(record) = TenantRow::decode(&view.value).ok()? else {
            self.seen.write().remove(&id);
            return None;
        };
        let verifier = self.verifier(&record);
        // The gauge is taken over under the lock: two who see a change at once must go on
        // counting in the same one.
        let mut seen = self.seen.write();
        let gauge = seen.get(&id).map_or_else(Arc::default, |old| Arc::clone(&old.gauge));
        let tenant = Arc::new(Tenant::new(record, verifier, gauge, view.etag));
        seen.insert(id, Arc::clone(&tenant));
        Some(tenant)
    }

    /// The name of a tenant that has been seen.
    pub(super) fn name_of(&self, id: TenantId) -> Option<Arc<str>> {
        self.seen.read().get(&id).map(|tenant| Arc::clone(&tenant.name))
    }

    fn verifier(&self, record: &TenantRecord) -> Option<Arc<Verifier>> {
        let Some(keys) = &record.shopper_keys else {
            return self.files.0.get(&record.name).cloned();
        };
        match Verifier::new(keys) {
            Ok(verifier) => Some(Arc::new(verifier)),
            Err(error) => {
                // They were parsed when they were set, so this is another version's doing.
                tracing::error!(tenant = record.name, %error, "shopper keys cannot be used");
                None
            }
        }
    }

    /// What `--dev` uses on a folder without tenants.
    pub(super) fn default_before_bootstrap(&self) -> Arc<Tenant> {
        let record = TenantRecord {
            id: tenants::DEFAULT_TENANT,
            name: tenants::DEFAULT_NAME.to_owned(),
            created_at_ms: 0,
            quotas: Quotas::UNLIMITED,
            shopper_keys: None,
        };
        Arc::new(Tenant::new(record, None, Arc::default(), 0))
    }
}

impl Tenant {
    fn new(
        record: TenantRecord,
        verifier: Option<Arc<Verifier>>,
        gauge: Arc<Gauge>,
        etag: u64,
    ) -> Tenant {
        Tenant {
            name: record.name.as_str().into(),
            rate: Rate::of_requests(&record.quotas),
            message_rate: Rate::of_messages(&record.quotas),
            view_key: tenants::tenant_view(record.id),
            record,
            verifier,
            gauge,
            etag,
        }
    }
}
