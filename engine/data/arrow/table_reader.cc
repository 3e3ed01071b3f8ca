/* Apache Arrow has only a C++ interface that its releases keep. This file makes rows of texts of it, and turns its
 * exceptions and statuses into sentences. Batches of rows are read one at a time, so memory is that of one batch of the
 * one column, and of the Parquet pages below it. */
#include "engine/data/table_reader.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <parquet/arrow/reader.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace {

constexpr int64_t BATCH_ROWS = 1024;

std::vector<std::string> parts_of(const std::string &column) {
    std::vector<std::string> parts;
    for (size_t from = 0;;) {
        const size_t dot = column.find('.', from);
        parts.push_back(column.substr(from, dot - from));
        if (dot == std::string::npos)
            return parts;
        from = dot + 1;
    }
}

std::string names_of(const arrow::Schema &schema) {
    std::string names;
    for (const auto &field : schema.fields())
        names += (names.empty() ? "'" : ", '") + field->name() + "'";
    return names.empty() ? "none" : names;
}

arrow::Status no_column(const arrow::Schema &schema, const std::string &name) {
    return arrow::Status::Invalid("has no column '", name, "'; it has ", names_of(schema));
}

/* A field of a column of structs; null where the struct is null. */
arrow::Result<std::shared_ptr<arrow::Array>> part_of(const std::shared_ptr<arrow::Array> &structs,
                                                     const std::string &column, const std::string &name) {
    if (structs->type_id() != arrow::Type::STRUCT)
        return arrow::Status::Invalid("has a column '", column, "' that has no fields");
    const auto &from = static_cast<const arrow::StructArray &>(*structs);
    const int at = from.struct_type()->GetFieldIndex(name);
    if (at < 0)
        return arrow::Status::Invalid("has no field '", name, "' in its column '", column, "'");
    return from.GetFlattenedField(at);
}

/* The strings of one row in any of Arrow's layouts. */
arrow::Result<std::string_view> text_of(const arrow::Array &array, int64_t row) {
    switch (array.type_id()) {
    case arrow::Type::STRING: return static_cast<const arrow::StringArray &>(array).GetView(row);
    case arrow::Type::LARGE_STRING: return static_cast<const arrow::LargeStringArray &>(array).GetView(row);
    case arrow::Type::STRING_VIEW: return static_cast<const arrow::StringViewArray &>(array).GetView(row);
    case arrow::Type::DICTIONARY: {
        const auto &words = static_cast<const arrow::DictionaryArray &>(array);
        return text_of(*words.dictionary(), words.GetValueIndex(row));
    }
    default: return arrow::Status::Invalid("has a column of ", array.type()->ToString(), ", not of strings");
    }
}

} // namespace

struct table {
    std::unique_ptr<parquet::arrow::FileReader> parquet;
    std::shared_ptr<arrow::RecordBatchReader> batches; /* a stream, or a Parquet file */
    std::shared_ptr<arrow::ipc::RecordBatchFileReader> file;
    int next_batch = 0; /* of `file` */
    std::vector<std::string> parts;
    std::shared_ptr<arrow::Array> column; /* of the batch */
    int64_t row = 0, rows_before = 0;

    arrow::Status begin_parquet(const std::shared_ptr<arrow::io::RandomAccessFile> &from) {
        parquet::arrow::FileReaderBuilder builder;
        parquet::ArrowReaderProperties properties;
        properties.set_batch_size(BATCH_ROWS);
        properties.set_use_threads(false);
        properties.set_pre_buffer(false);
        ARROW_RETURN_NOT_OK(builder.Open(from));
        ARROW_RETURN_NOT_OK(builder.properties(properties)->Build(&parquet));
        std::shared_ptr<arrow::Schema> schema;
        ARROW_RETURN_NOT_OK(parquet->GetSchema(&schema));
        if (schema->GetFieldIndex(parts[0]) < 0)
            return no_column(*schema, parts[0]);
        std::vector<int> groups, leaves;
        for (int i = 0; i < parquet->num_row_groups(); i++)
            groups.push_back(i);
        const auto *stored = parquet->parquet_reader()->metadata()->schema();
        for (int i = 0; i < stored->num_columns(); i++)
            if (stored->Column(i)->path()->ToDotVector()[0] == parts[0])
                leaves.push_back(i);
        ARROW_ASSIGN_OR_RAISE(batches, parquet->GetRecordBatchReader(groups, leaves));
        return arrow::Status::OK();
    }

    arrow::Status begin_arrow(const std::shared_ptr<arrow::io::RandomAccessFile> &from) {
        ARROW_ASSIGN_OR_RAISE(auto first, from->ReadAt(0, 6));
        if (first->ToString() == "ARROW1") {
            ARROW_ASSIGN_OR_RAISE(file, arrow::ipc::RecordBatchFileReader::Open(from));
            return check(*file->schema());
        }
        ARROW_RETURN_NOT_OK(from->Seek(0)); /* required after ReadAt */
        ARROW_ASSIGN_OR_RAISE(batches, arrow::ipc::RecordBatchStreamReader::Open(from));
        return check(*batches->schema());
    }

    arrow::Status check(const arrow::Schema &schema) const {
        return schema.GetFieldIndex(parts[0]) < 0 ? no_column(schema, parts[0]) : arrow::Status::OK();
    }

    /* The next batch of rows; NULL at the end. */
    arrow::Result<std::shared_ptr<arrow::RecordBatch>> read_batch() {
        std::shared_ptr<arrow::RecordBatch> batch;
        if (!file) {
            ARROW_RETURN_NOT_OK(batches->ReadNext(&batch));
        } else if (next_batch < file->num_record_batches()) {
            ARROW_ASSIGN_OR_RAISE(batch, file->ReadRecordBatch(next_batch++));
        }
        return batch;
    }

    /* Moves on to a batch that has rows; false at the end. */
    arrow::Result<bool> advance() {
        while (!column || row == column->length()) {
            rows_before += row;
            row = 0;
            ARROW_ASSIGN_OR_RAISE(auto batch, read_batch());
            if (!batch)
                return false;
            ARROW_RETURN_NOT_OK(batch->ValidateFull()); /* else damaged offsets lead out of the buffers */
            column = batch->GetColumnByName(parts[0]);
            for (size_t i = 1; i < parts.size(); i++) {
                ARROW_ASSIGN_OR_RAISE(column, part_of(column, parts[i - 1], parts[i]));
            }
        }
        return true;
    }

    arrow::Result<std::string_view> next() {
        if (column->IsNull(row))
            return arrow::Status::Invalid("row ", rows_before + row + 1, " has no text");
        return text_of(*column, row++);
    }
};

namespace {

void put_reason(const char *sentence, char *why, size_t n) { snprintf(why, n, "%s", sentence); }

arrow::Result<std::unique_ptr<table>> opened(int file, table_form form, const char *column) {
    auto t = std::make_unique<table>();
    t->parts = parts_of(column);
    const int own = dup(file);
    if (own < 0)
        return arrow::Status::IOError(strerror(errno));
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::io::RandomAccessFile> from, arrow::io::ReadableFile::Open(own));
    ARROW_RETURN_NOT_OK(form == TABLE_PARQUET ? t->begin_parquet(from) : t->begin_arrow(from));
    return t;
}

struct table *table_open(int file, enum table_form form, const char *column, char *why, size_t n) {
    try {
        auto t = opened(file, form, column);
        if (t.ok())
            return t->release();
        put_reason(t.status().message().c_str(), why, n);
    } catch (const std::exception &e) {
        put_reason(e.what(), why, n);
    }
    return nullptr;
}

enum table_result table_next(struct table *t, const char **ret, size_t *ret_bytes, char *why, size_t n) {
    try {
        const auto more = t->advance();
        if (more.ok() && !*more)
            return TABLE_END;
        const auto text = more.ok() ? t->next() : arrow::Result<std::string_view>(more.status());
        if (text.ok()) {
            *ret = text->data();
            *ret_bytes = text->size();
            return TABLE_ROW;
        }
        put_reason(text.status().message().c_str(), why, n);
    } catch (const std::exception &e) {
        put_reason(e.what(), why, n);
    }
    return TABLE_ERROR;
}

void table_close(struct table *t) { delete t; }

} // namespace

extern "C" {
extern const struct table_reader trainyard_table_reader __attribute__((visibility("default")));
const struct table_reader trainyard_table_reader = { TABLE_READER_VERSION, table_open, table_next, table_close };
}
