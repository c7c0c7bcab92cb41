"""Why a backend is faster or slower: where its steps spend time, and where the baseline's do."""
