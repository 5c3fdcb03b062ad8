"""What goes in and what comes out, as the OpenAPI document shows it."""
