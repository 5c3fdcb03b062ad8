"""Everything that lasts: tables, migrations, blobs and the formats stored in them."""
